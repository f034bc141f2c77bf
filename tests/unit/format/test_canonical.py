"""Canonical JSON: one spelling is written, and only that spelling is read."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tallystick.errors import Corrupt
from tallystick.format import canonical
from tallystick.format.canonical import dumps, loads

NAME = "tallystick.test/1"
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
)


def read(body: bytes) -> dict[str, Any]:
    return loads(body, where="s3://lake/x.json", format_name=NAME)


@given(st.dictionaries(st.text(max_size=6).filter(lambda k: k != "format"), values, max_size=5))
def test_every_exact_value_round_trips(value: dict[str, Any]) -> None:
    body = dumps({"format": NAME, **value})
    got = read(body)
    assert got == value
    assert dumps({"format": NAME, **got}) == body


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"a": 1.5}, "found the float"),
        ({"a": [{"b": float("nan")}]}, "exact values only"),
        ({"a": 10**5000}, "exact values only"),
        ({1: "a"}, "expected a string as JSON key"),
        ({"a": 2**63}, "does not fit 64 bits"),
        ({"a": [-(2**63) - 1]}, "does not fit 64 bits"),
        ({"a": IntEnum("Large", {"most": 2**63}).most}, "does not fit 64 bits"),
    ],
)
def test_inexact_values_are_not_written(value: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        dumps(value)


def test_subclasses_of_text_and_integers_are_written_as_these() -> None:
    large = IntEnum("Large", {"most": 2**63 - 1}).most
    name = StrEnum("Name", {"short": "a"}).short
    assert dumps({"a": large, "b": [name]}) == b'{"a":9223372036854775807,"b":["a"]}'


inexact = st.floats() | st.integers(min_value=2**63) | st.integers(max_value=-(2**63) - 1)
wrong_keys = st.integers() | st.floats(allow_nan=False) | st.booleans() | st.none()


@given(value=values, bad=inexact, key=wrong_keys, depth=st.integers(0, 3), use_key=st.booleans())
def test_one_inexact_value_or_key_anywhere_is_refused(
    value: Any, bad: Any, key: Any, depth: int, use_key: bool
) -> None:
    inner: Any = {key: value} if use_key else [value, bad]
    for _ in range(depth):
        inner = [value, inner] if depth % 2 else {"x": inner, "y": value}
    with pytest.raises(TypeError):
        dumps({"a": inner})


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"format":"tallystick.test/1","format":"tallystick.test/1"}', "duplicate key 'format'"),
        (b'{"a":1,"b":2,"a":3}', "duplicate key 'a'"),
        (b'{"format": "tallystick.test/1"}', "another encoding"),
        (b'{"format":"tallystick.test/1","a":1}', "another encoding"),
        (b'{"a":"\\u0041","format":"tallystick.test/1"}', "another encoding"),
        (b'{"a":"\\ud800","format":"tallystick.test/1"}', "expected canonical JSON"),
        (b'{"format":"tallystick.test/1","a":1.0}', "is not exact"),
        (b'{"format":"tallystick.test/1","a":NaN}', "is not exact"),
        (b'{"format":"tallystick.test/1","a":9223372036854775808}', "does not fit 64 bits"),
        (b'{"format":"tallystick.test/1","a":' + b"9" * 5000 + b"}", "does not fit 64 bits"),
        (b"[1]", "expected a JSON object"),
        (b"\xff{}", "expected canonical JSON"),
        (b"{", "expected canonical JSON"),
        (b"", "expected canonical JSON"),
        (b'{"format":"tallystick.test/2"}', "written by another version"),
        (b'{"format":"other/1"}', "found 'other/1'"),
        (b'{"format":7}', "found 7"),
        (b"{}", "found None"),
        (b'{"a":' + b"[" * 100 + b"]" * 100 + b"}", "nested deeper"),
    ],
)
def test_a_body_that_is_not_canonical_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(Corrupt, match=why) as caught:
        read(body)
    assert "s3://lake/x.json" in caught.value.message
    assert "nothing was changed" in caught.value.hint


def test_brackets_inside_strings_do_not_count_as_depth() -> None:
    text = '[{"\\' * 60
    assert read(dumps({"format": NAME, "a": text, "b": [[], {}]})) == {"a": text, "b": [[], {}]}


def depth_by_byte(body: bytes) -> int:
    """Return the greatest depth of brackets outside of strings, byte by byte."""
    depth = deepest = 0
    in_string = escaped = False
    for byte in body:
        if in_string:
            in_string = escaped or byte != ord('"')
            escaped = not escaped and byte == ord("\\")
        elif byte == ord('"'):
            in_string = True
        elif byte in b"[]{}":
            depth += 1 if byte in b"[{" else -1
            deepest = max(deepest, depth)
    return deepest


nested = st.recursive(
    st.text('[]{}",\\', max_size=9),
    lambda inner: st.builds(
        lambda times, text: "[" * times + text + "]" * times, st.integers(0, 70), inner
    ),
    max_leaves=4,
)


@given(text=nested | st.text('[]{}",\\', max_size=300))
@example(text="[" * 64 + "]" * 64)
@example(text="[" * 65 + "]" * 65)
@example(text="{" * 65)
@example(text="]" * 9 + "[" * 73)
@example(text="]" * 9 + "[" * 74)
@example(text="[" * 65 + '"]]')
@example(text="[" * 60 + '"' + "[" * 9)
@example(text="[" * 60 + '"\\"' + "[" * 9)
@example(text="[" * 60 + '"\\\\"' + "[" * 9)
@example(text="[" * 60 + '"\\')
def test_the_depth_is_that_of_brackets_outside_of_strings(text: str) -> None:
    body = text.encode()
    assert canonical._depth_exceeds(body) is (depth_by_byte(body) > canonical.DEPTH_MAX)


def test_a_body_that_is_too_large_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canonical, "BODY_BYTES_MAX", 10)
    with pytest.raises(Corrupt, match="expected at most 10 bytes"):
        read(b'{"format":"tallystick.test/1"}')
