"""The timestamp and the key of a line: every rule, every way in which a field can be unusable."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tallystick.errors import InvalidRequest
from tallystick_devstack.record_fields import BadLineError, Fields, TimeRange

ANY = TimeRange(first_ms=1, last_ms=2**62)
NOON = int(datetime(2015, 9, 12, 12, tzinfo=UTC).timestamp()) * 1000


def time_of(value: str, rule: str | None = None, allowed: TimeRange = ANY) -> int | None:
    """Return the timestamp of a line with the JSON text `value` in its field."""
    read = Fields(time="t", time_format=rule).reader(allowed)
    return read(b'{"t": ' + value.encode() + b"}")[0]


@pytest.mark.parametrize(
    ("value", "rule", "expected"),
    [
        ('"2015-09-12T12:00:00Z"', None, NOON),
        ('"2015-09-12T12:00:00.771Z"', "iso8601", NOON + 771),
        ('"2015-09-12 14:00:00+02:00"', None, NOON),
        ('"2015-09-12T12:00:00"', None, NOON),  # without an offset, it is UTC
        ('"2015-09-12"', None, NOON - 12 * 3_600_000),
        ('"2015-09-12T12:00:00.771999999Z"', None, NOON + 771),
        (str(NOON // 1000), "epoch_s", NOON),
        (f"{NOON // 1000}.7719999999", "epoch_s", NOON + 771),
        (f'"{NOON // 1000}"', "epoch_s", NOON),
        (str(NOON), "epoch_ms", NOON),
        (f"{NOON}771", "epoch_us", NOON),
        (f"{NOON}999.5", "epoch_us", NOON),
        ("1.4420592e9", "epoch_s", NOON),
        ("1", "epoch_ms", 1),
        ('"12/Sep/2015:14:00:00 +0200"', "%d/%b/%Y:%H:%M:%S %z", NOON),
        ('"12.09.2015 12:00"', "%d.%m.%Y %H:%M", NOON),
    ],
)
def test_a_time_is_read_by_its_rule_down_to_milliseconds(
    value: str, rule: str | None, expected: int
) -> None:
    assert time_of(value, rule) == expected


@pytest.mark.parametrize(
    ("value", "rule", "why"),
    [
        ("null", None, "no value in field 't'"),
        ("true", None, "a boolean, not a time"),
        ("[1]", "epoch_s", "an array, not a time"),
        ('{"a": 1}', None, "an object, not a time"),
        ('"yesterday"', None, "is not an ISO 8601 time"),
        ('"2015-13-12T12:00:00Z"', None, "is not a day of the calendar"),
        ('"2015-09-12T25:00:00Z"', None, "has an invalid time of day"),
        ('"soon"', "epoch_s", "'soon', which is not a number"),
        ('"12/Sep/2015"', "%Y-%m-%d", "does not match"),
        ("1442059200", None, "is the number 1442059200, which is not ISO 8601"),
        ("NaN", "epoch_s", "NaN is not a JSON number"),
        ('"1970-01-01T00:00:00Z"', None, "not after 1970-01-01T00:00:00Z"),  # 0 would be "now"
        ("0", "epoch_s", "not after 1970-01-01T00:00:00Z"),
        ('"1969-12-31T23:59:59Z"', None, "not after 1970-01-01T00:00:00Z"),
        ("1e400", "epoch_s", "outside the years 1 to 9999"),
    ],
)
def test_a_time_that_cannot_be_used_names_the_reason(
    value: str, rule: str | None, why: str
) -> None:
    with pytest.raises(BadLineError) as caught:
        time_of(value, rule)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("value", "rule", "hint"),
    [
        (str(NOON // 1000), None, "--time-format epoch_s (then it is 2015-09-12 12:00:00)"),
        (str(NOON), None, "--time-format epoch_ms (then it is 2015-09-12 12:00:00)"),
        (f"{NOON}000", "epoch_ms", "--time-format epoch_us (then it is 2015-09-12 12:00:00)"),
        (str(NOON), "epoch_us", "--time-format epoch_ms (then it is 2015-09-12 12:00:00)"),
        ("3", None, "--time-format epoch_s, epoch_ms, epoch_us"),
    ],
)
def test_a_number_of_another_unit_gets_the_unit_that_fits(
    value: str, rule: str | None, hint: str
) -> None:
    with pytest.raises(BadLineError) as caught:
        time_of(value, rule)
    assert hint in str(caught.value.hint)


def test_a_time_that_the_topic_refuses_is_a_bad_line() -> None:
    allowed = TimeRange.of(1000, 3_600_000, now_ms=NOON)
    assert time_of(str(NOON + 3_600_000), "epoch_ms", allowed) == NOON + 3_600_000
    assert time_of(str(NOON - 1000), "epoch_ms", allowed) == NOON - 1000
    with pytest.raises(BadLineError, match="after 2015-09-12T13:00:00Z, the topic's limit"):
        time_of(str(NOON + 3_600_001), "epoch_ms", allowed)
    with pytest.raises(BadLineError, match="before 2015-09-12T11:59:59Z, the topic's limit"):
        time_of(str(NOON - 1001), "epoch_ms", allowed)
    unlimited = TimeRange.of(2**63 - 1, 2**63 - 1, now_ms=NOON)
    assert time_of('"9999-12-31T23:59:59Z"', None, unlimited) == 253_402_300_799_000


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "not JSON"),
        (b"", "not JSON"),
        (b"[1]", "an array, not an object"),
        (b'"text"', "a string, not an object"),
        (b"7", "a number, not an object"),
        (b"null", "null, not an object"),
        (b'{"t": "\xff"}', "byte 7 is not UTF-8"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_a_line_that_is_no_json_object_names_the_reason(line: bytes, why: str) -> None:
    with pytest.raises(BadLineError, match=why):
        Fields(key="t").reader(ANY)(line)


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ('"a"', b"a"),
        ('""', b""),
        ('"ü"', "ü".encode()),
        ("7", b"7"),
        ("1.0", b"1.0"),
        ("12345678901234567890", b"12345678901234567890"),
        ("true", b"true"),
        ("false", b"false"),
        ("null", None),
    ],
)
def test_a_key_is_the_text_of_the_field(value: str, key: bytes | None) -> None:
    assert Fields(key="k").reader(ANY)(b'{"k": ' + value.encode() + b"}") == (None, key)


@pytest.mark.parametrize("value", ["[]", "{}", r'"\ud800"'])
def test_a_key_that_is_no_text_is_a_bad_line(value: str) -> None:
    with pytest.raises(BadLineError, match="field 'k'"):
        Fields(key="k").reader(ANY)(b'{"k": ' + value.encode() + b"}")


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (b'{"a": {"b": "inner"}}', b"inner"),
        (b'{"a.b": "outer", "a": {"b": "inner"}}', b"outer"),
        (b'{"a": "text"}', None),
        (b'{"a": {"c": 1}}', None),
    ],
)
def test_a_dotted_field_is_that_name_or_else_a_nested_one(line: bytes, key: bytes | None) -> None:
    assert Fields(key="a.b").reader(ANY)(line)[1] == key


@pytest.mark.parametrize("rule", ["x", "%d", "%H:%M", "%Q %Y", "epoch"])
def test_an_unknown_rule_is_refused_before_any_line(rule: str) -> None:
    with pytest.raises(InvalidRequest, match="--time-format"):
        Fields(time="t", time_format=rule)


def test_a_rule_without_a_field_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="expected --time with it"):
        Fields(time_format="epoch_s")
