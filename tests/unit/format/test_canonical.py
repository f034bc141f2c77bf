"""Canonical JSON: one spelling out, and nothing but that in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import Corrupt
from tallystick.format import canonical
from tallystick.format.canonical import decode, encode

NAME = "tallystick.test/1"
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
)


def read(body: bytes) -> canonical.Fields:
    return decode(body, where="s3://lake/x.json", format_name=NAME)


@given(st.dictionaries(st.text(max_size=6).filter(lambda k: k != "format"), values, max_size=5))
def test_every_exact_value_comes_back(value: dict[str, Any]) -> None:
    body = encode({"format": NAME, **value})
    fields = read(body)
    got = {key: fields._left[key] for key in value}
    assert got == value
    assert encode({"format": NAME, **got}) == body


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"a": 1.5}, "is a float"),
        ({"a": [{"b": float("nan")}]}, "is a float"),
        ({1: "a"}, "is no JSON key"),
        ({"a": 2**63}, "does not fit 64 bits"),
    ],
)
def test_inexact_values_are_not_written(value: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        encode(value)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"format":"tallystick.test/1","format":"tallystick.test/1"}', "stands twice"),
        (b'{"a":1,"b":2,"a":3}', "'a' stands twice"),
        (b'{"format": "tallystick.test/1"}', "another spelling"),
        (b'{"format":"tallystick.test/1","a":1}', "another spelling"),
        (b'{"a":"\\u0041","format":"tallystick.test/1"}', "another spelling"),
        (b'{"a":"\\ud800","format":"tallystick.test/1"}', "not canonical JSON"),
        (b'{"format":"tallystick.test/1","a":1.0}', "is not exact"),
        (b'{"format":"tallystick.test/1","a":NaN}', "is not exact"),
        (b'{"format":"tallystick.test/1","a":9223372036854775808}', "does not fit 64 bits"),
        (b'{"format":"tallystick.test/1","a":' + b"9" * 5000 + b"}", "does not fit 64 bits"),
        (b"[1]", "not a JSON object"),
        (b"\xff{}", "not canonical JSON"),
        (b"{", "not canonical JSON"),
        (b"", "not canonical JSON"),
        (b'{"format":"tallystick.test/2"}', "written by another version"),
        (b'{"format":"other/1"}', "format is 'other/1'"),
        (b'{"format":7}', "format is 7"),
        (b"{}", "format is None"),
        (b'{"a":' + b"[" * 100 + b"]" * 100 + b"}", "nested deeper"),
    ],
)
def test_what_is_not_exactly_that_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(Corrupt, match=why) as caught:
        read(body)
    assert "s3://lake/x.json" in caught.value.happened
    assert "nothing was changed" in caught.value.next_step


def test_brackets_inside_strings_do_not_count_as_depth() -> None:
    text = '[{"\\' * 60
    fields = read(encode({"format": NAME, "a": text, "b": [[], {}]}))
    assert fields.take("a", str) == text


def test_a_body_that_is_too_large_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canonical, "BODY_BYTES_MAX", 10)
    with pytest.raises(Corrupt, match="more than the 10 allowed"):
        read(b'{"format":"tallystick.test/1"}')


def test_fields_are_taken_once_and_with_their_type() -> None:
    fields = read(
        encode(
            {
                "format": NAME,
                "n": 1,
                "s": "x",
                "none": None,
                "list": [1],
                "map": {"k": "v"},
                "o": {},
            }
        )
    )
    with pytest.raises(Corrupt, match="'n' is an integer, not a string"):
        fields.take("n", str)
    fields = read(encode({"format": NAME, "flag": True}))
    with pytest.raises(Corrupt, match="'flag' is a boolean, not an integer"):
        fields.take("flag", int)
    fields = read(
        encode(
            {"format": NAME, "none": None, "list": [1], "map": {"k": "v"}, "o": {"x": 1}, "p": None}
        )
    )
    assert fields.take_or_none("none", str) is None
    assert fields.take_list("list", canonical.integer) == (1,)
    assert fields.take_map("map", canonical.text) == {"k": "v"}
    inner = fields.take_fields("o")
    assert inner.take_or_none("x", int) == 1
    inner.done()
    assert fields.take_fields_or_none("p") is None
    fields.done()
    with pytest.raises(Corrupt, match="'gone' is missing"):
        fields.take("gone", int)


def test_a_field_that_is_not_known_is_refused() -> None:
    fields = read(encode({"format": NAME, "surprise": 1}))
    with pytest.raises(Corrupt, match="unknown field 'surprise'"):
        fields.done()
    nested = read(encode({"format": NAME, "o": {"x": 1}})).take_fields_or_none("o")
    assert nested is not None
    with pytest.raises(Corrupt, match="unknown field 'x'"):
        nested.done()


@pytest.mark.parametrize(
    ("parse", "value", "why"),
    [
        (canonical.integer, "1", "a string where an integer"),
        (canonical.integer, True, "a boolean where an integer"),
        (canonical.text, [], "a list where a string"),
        (canonical.fields, None, "null where an object"),
        (canonical.text, {}, "an object where a string"),
        (lambda v, w: canonical.integers(v, w, count=2), [1], "a list of 2 integers"),
        (lambda v, w: canonical.integers(v, w, count=1), 1, "a list of 1 integers"),
    ],
)
def test_a_value_of_another_kind_is_refused(parse: Any, value: Any, why: str) -> None:
    with pytest.raises(Corrupt, match=why):
        parse(value, "here")
