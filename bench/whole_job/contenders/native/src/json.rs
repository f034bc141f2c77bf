//! Events from JSON: a quick way for the usual text, and sonic-rs for all else.

use std::borrow::Cow;

use serde::Deserialize;

/// One event, as its JSON is. Strings without escapes are borrowed from the record.
#[derive(Debug, Deserialize, PartialEq)]
pub struct Click<'a> {
    #[serde(borrow)]
    pub event_id: Cow<'a, str>,
    #[serde(borrow)]
    pub event_type: Cow<'a, str>,
    pub user_id: i64,
    #[serde(borrow)]
    pub session: Cow<'a, str>,
    pub ts: i64,
    #[serde(borrow)]
    pub page: Cow<'a, str>,
    #[serde(borrow)]
    pub referrer: Cow<'a, str>,
    pub price: f64,
    pub qty: i32,
    #[serde(borrow)]
    pub device: Device<'a>,
}

/// The nested object.
#[derive(Debug, Deserialize, PartialEq)]
pub struct Device<'a> {
    #[serde(borrow)]
    pub os: Cow<'a, str>,
    #[serde(borrow)]
    pub ver: Cow<'a, str>,
}

impl<'a> Click<'a> {
    /// Returns the event, or None if the value is no valid event.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        Self::in_usual_order(value).or_else(|| sonic_rs::from_slice(value).ok())
    }

    /// Returns the event if its fields are in the usual order, without escapes and exponents. None decides nothing: the
    /// text may be valid all the same.
    fn in_usual_order(value: &'a [u8]) -> Option<Self> {
        let text = simdutf8::basic::from_utf8(value).ok()?;
        let mut cursor = Cursor { text, at: 0 };
        cursor.token(b"{")?;
        let click = Self {
            event_id: cursor.name(b"\"event_id\"")?.string()?,
            event_type: cursor.next(b"\"event_type\"")?.string()?,
            user_id: cursor.next(b"\"user_id\"")?.integer()?,
            session: cursor.next(b"\"session\"")?.string()?,
            ts: cursor.next(b"\"ts\"")?.integer()?,
            page: cursor.next(b"\"page\"")?.string()?,
            referrer: cursor.next(b"\"referrer\"")?.string()?,
            price: cursor.next(b"\"price\"")?.decimal()?,
            qty: cursor.next(b"\"qty\"")?.integer()?.try_into().ok()?,
            device: {
                cursor.next(b"\"device\"")?.token(b"{")?;
                let os = cursor.name(b"\"os\"")?.string()?;
                let ver = cursor.next(b"\"ver\"")?.string()?;
                cursor.token(b"}")?;
                Device { os, ver }
            },
        };
        cursor.token(b"}")?;
        cursor.skip_blanks();
        (cursor.at == text.len()).then_some(click)
    }
}

/// A place in a text of valid UTF-8. Each method moves behind what it names, or returns None.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    #[inline(always)]
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    #[inline(always)]
    fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    // The size is a constant, so the comparison is one of words and not a call.
    #[inline(always)]
    fn token<const SIZE: usize>(&mut self, token: &[u8; SIZE]) -> Option<()> {
        self.skip_blanks();
        let found = self.text.as_bytes()[self.at..].first_chunk::<SIZE>()?;
        self.at += SIZE;
        (found == token).then_some(())
    }

    #[inline(always)]
    fn name<const SIZE: usize>(&mut self, name: &[u8; SIZE]) -> Option<&mut Self> {
        self.token(name)?;
        self.token(b":")?;
        self.skip_blanks();
        Some(self)
    }

    #[inline(always)]
    fn next<const SIZE: usize>(&mut self, name: &[u8; SIZE]) -> Option<&mut Self> {
        self.token(b",")?;
        self.name(name)
    }

    #[inline(always)]
    fn string(&mut self) -> Option<Cow<'a, str>> {
        self.token(b"\"")?;
        let start = self.at;
        loop {
            let Some(word) = self.text.as_bytes()[self.at..].first_chunk::<8>() else {
                break;
            };
            let special = special_bytes(u64::from_le_bytes(*word));
            self.at += special.trailing_zeros() as usize / 8;
            if special != 0 {
                break;
            }
        }
        while !matches!(self.peek()?, b'"' | b'\\' | ..0x20) {
            self.at += 1;
        }
        let string = self.text.get(start..self.at)?;
        self.token(b"\"")?; // fails at a backslash and at a control character
        Some(Cow::Borrowed(string))
    }

    /// Returns the digits as a number, and how many there are: at least one, and so few that i64 has room.
    #[inline(always)]
    fn digits(&mut self) -> Option<(i64, usize)> {
        let (mut number, start) = (0, self.at);
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            if self.at - start == 18 {
                return None;
            }
            number = number * 10 + i64::from(digit - b'0');
            self.at += 1;
        }
        (self.at > start).then_some((number, self.at - start))
    }

    #[inline(always)]
    fn sign(&mut self) -> bool {
        let is_negative = self.peek() == Some(b'-');
        self.at += usize::from(is_negative);
        is_negative
    }

    #[inline(always)]
    fn integer(&mut self) -> Option<i64> {
        let is_negative = self.sign();
        let is_zero = self.peek() == Some(b'0');
        let (number, count) = self.digits()?;
        // JSON has no leading zeros.
        (!is_zero || count == 1).then_some(if is_negative { -number } else { number })
    }

    #[inline(always)]
    fn decimal(&mut self) -> Option<f64> {
        const POWERS: [f64; 16] = [
            1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
        ];
        let is_negative = self.sign();
        let is_zero = self.peek() == Some(b'0');
        let (whole, count) = self.digits()?;
        let (fraction, places) = if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?
        } else {
            (0, 0)
        };
        // Up to 15 digits and their power of ten are exact doubles, so that one division rounds correctly.
        if count + places > 15 || (is_zero && count > 1) {
            return None;
        }
        let number = (whole * POWERS[places] as i64 + fraction) as f64 / POWERS[places];
        Some(if is_negative { -number } else { number })
    }
}

/// Returns a word whose lowest set bit is in the first byte that is a quote, a backslash or a control character.
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    let less = |word: u64, than: u64| word.wrapping_sub(ONES * than) & !word & (ONES << 7);
    let equal = |byte: u8| less(word ^ (ONES * u64::from(byte)), 1);
    less(word, 0x20) | equal(b'"') | equal(b'\\')
}

#[cfg(test)]
mod tests {
    use super::Click;

    const USUAL: &str = r#"{"event_id": "0123456789abcdef", "event_type": "view", "user_id": -7, "session": "", "ts": 0,
        "page": "/ä", "referrer": "x", "price": 12.34, "qty": 3, "device": {"os": "web", "ver": "1.2"}}"#;

    /// Valid or not, both ways must agree, and texts of the usual form must not need the second one.
    #[test]
    fn both_ways_agree() {
        let changes = [
            ("12.34", "0.07"),
            ("12.34", "99.99"),
            ("12.34", "5"),
            ("12.34", "-0.0"),
            ("12.34", "1e2"),
            ("12.34", "1."),
            ("12.34", "01.5"),
            ("12.34", "\"1\""),
            ("12.34", "123456789.1234567"),
            ("12.34", "999999999999999"),
            ("-7", "07"),
            ("-7", "-"),
            ("-7", "1.0"),
            ("-7", "9223372036854775807"),
            ("-7", "9223372036854775808"),
            ("3,", "3000000000,"),
            ("view", r"vi\new"),
            ("view", "vi\new"),
            ("view", r"vi\\ew"),
            ("\"ts\": 0,", ""),
            ("\"ts\"", "\"other\": [1], \"ts\""),
            (", \"ver\"", " \"ver\""),
            ("}}", "}"),
            ("}}", "}} x"),
            ("}}", "} }\n"),
            ("{\"os\"", "{ \"os\""),
            ("\"web\"", "null"),
            ("view", "a\u{7f}\u{80}b"),
            ("view", "1234567\u{1}"),
        ];
        assert!(Click::in_usual_order(USUAL.as_bytes()).is_some());
        for (from, to) in changes {
            let text = USUAL.replacen(from, to, 1);
            assert_ne!(text, USUAL, "{from}");
            let other = sonic_rs::from_slice::<Click>(text.as_bytes()).ok();
            if let Some(found) = Click::in_usual_order(text.as_bytes()) {
                assert_eq!(Some(found), other, "{text}");
            }
            assert_eq!(Click::parse(text.as_bytes()), other, "{text}");
        }
        for length in 0..USUAL.len() {
            assert!(Click::parse(&USUAL.as_bytes()[..length]).is_none());
        }
        assert!(Click::parse(&USUAL.replace("view", "v\0w").into_bytes()).is_none());
    }
}
