"""Characters, digits and names are compared up to 32 bytes at once: the rows are those of the exact rules everywhere."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tallystick.engine.decode.json.exact import ExactRow
from tallystick.engine.decode.json.layout import Layout
from tallystick.engine.decode.json.locate import locate
from tallystick.engine.decode.json.parsed import MismatchError
from tallystick.engine.decode.json.rows import JsonDecoder
from tallystick.pipeline import Column, Json
from tallystick.pipeline.paths import escaped

LENGTHS = (*range(25), 31, 32, 33, 39, 40, 41, 63, 64, 65)
# A character that ends the plain ones, or one next to it that does not.
CHARACTERS = [
    *(b'"', b'\\"', b"\\", b"\\n", b"\\u00e9", b"\x00", b"\x1f", b" ", b"!", b"#", b"[", b"]"),
    *(b"~", b"\x7f", b"\x80", b"\xff", "é".encode(), "€".encode(), "😀".encode(), b"\xc3", b"\xa2"),
]


def exactly(columns: list[Column], body: bytes) -> Any:
    try:
        return dict(zip((c.name for c in columns), ExactRow(columns).decode(body), strict=True))
    except MismatchError as mismatch:
        return mismatch.reason


def decoded(columns: list[Column], bodies: list[bytes]) -> list[Any]:
    """Return the row of each value, or the reason why there is none."""
    found = JsonDecoder(Json(columns)).decode_values(pa.array(bodies, pa.binary()))
    rows: dict[int, Any] = dict(zip(found.kept.tolist(), found.rows.to_pylist(), strict=True))
    rows |= dict(zip(found.dead.tolist(), found.reasons, strict=True))
    return [rows[number] for number in range(len(bodies))]


@pytest.mark.parametrize("character", CHARACTERS, ids=repr)
def test_a_character_at_any_position_of_a_string(character: bytes) -> None:
    columns = [Column("s", "string", required=False)]
    texts = [
        b"a" * at + character + b"z" * (length - at)
        for length in LENGTHS
        for at in range(length + 1)
    ]
    # As a value, and as the name of a field that no column reads.
    bodies = [b'{"s":"' + text + b'"}' for text in texts]
    bodies += [b'{"' + text + b'":1,"s":"x"}' for text in texts]
    assert decoded(columns, bodies) == [exactly(columns, body) for body in bodies]


def test_two_special_characters_at_any_positions_of_eight() -> None:
    columns = [Column("s", "string", required=False)]
    bodies = []
    for first, second in itertools.product((b'"', b"\\", b"\x01", b"\x80", b"\x20"), repeat=2):
        for one, other in itertools.combinations(range(10), 2):
            text = bytearray(b"abcdefghij")
            text[one : one + 1], text[other : other + 1] = first, second
            bodies.append(b'{"s":"' + bytes(text) + b'"}')
    assert decoded(columns, bodies) == [exactly(columns, body) for body in bodies]


@pytest.mark.parametrize(
    "character", [b"/", b":", b".", b"e", b"-", b" ", b",", b"a", b"\x00", b"\xb0"]
)
def test_a_character_at_any_position_of_a_number(character: bytes) -> None:
    columns = [Column("n", "decimal(38,9)", required=False), Column("s", "string", required=False)]
    texts = [
        b"1" * at + character + b"9" * (length - at)
        for length in range(36)
        for at in range(length + 1)
    ]
    # With text after the number, all of its digits are compared at once.
    bodies = [b'{"n":' + text + b"}" for text in texts]
    bodies += [b'{"n":' + text + b',"s":"%b"}' % (b"z" * 40) for text in texts]
    assert decoded(columns, bodies) == [exactly(columns, body) for body in bodies]


@pytest.mark.parametrize("before", ["", "z" * 40])
@pytest.mark.parametrize("size", range(1, 20))
def test_whole_numbers_of_any_size(size: int, before: str) -> None:
    columns = [Column("n", "long", required=False), Column("i", "int", required=False)]
    numbers = [int(("1234567890" * 2)[:size]), 10 ** (size - 1), 10**size - 1, 9 * 10 ** (size - 1)]
    bodies = [
        f'{{"{before}":0,"n":{sign}{n},"i":{sign}{n}}}'.encode()
        for n in numbers
        for sign in ("", "-")
    ]
    # The first record of a batch has no bytes before it.
    for body in bodies:
        assert decoded(columns, [body]) == [exactly(columns, body)]
    assert decoded(columns, bodies) == [exactly(columns, body) for body in bodies]


@pytest.mark.parametrize("size", range(1, 20))
def test_a_name_that_differs_in_any_one_byte_is_another_name(size: int) -> None:
    name = "abcdefghijklmnopqrst"[:size]
    columns = [Column("x", "long", required=False, source=name)]
    others = [name[:at] + "_" + name[at + 1 :] for at in range(size)]
    others += [name + "_", name[:-1], "_" + name]
    bodies = [f'{{"{other}":1}}'.encode() for other in others]
    assert decoded(columns, bodies) == [{"x": None}] * len(bodies)
    assert decoded(columns, [f'{{"{name}":1}}'.encode()]) == [{"x": 1}]
    # Cut off at every byte: no byte after the value is looked at.
    whole = f'{{"{name}":1}}'.encode()
    cut = [whole[:end] for end in range(len(whole))]
    assert decoded(columns, cut) == [exactly(columns, body) for body in cut]


@pytest.mark.parametrize(
    "name", ['a"b', "a\\b", "a\nb", "a\x00b", '"', "\\", "é", "naïve name", "😀"]
)
def test_a_name_that_json_must_escape_is_found_only_with_its_escape(name: str) -> None:
    columns = [Column("x", "long", required=False, source=escaped(name))]
    raw = b'{"' + name.encode() + b'":1}'
    assert decoded(columns, [raw]) == [exactly(columns, raw)]
    arrays = Layout(columns).arrays
    assert arrays.plain.tolist() == [all(c not in '"\\' and c >= " " for c in name)]


def test_the_fast_path_proves_plain_records() -> None:
    """If it proved none, all tests above would compare the exact rules with themselves."""
    columns = [
        Column("event_identifier", "string"),
        Column("n", "long"),
        Column("deep", "string", source="inside.field_of_it"),
    ]
    body = (
        b'{"event_identifier": "0123456789abcdef", "n": 1, "inside": {"field_of_it": "abcdefgh"}}'
    )
    values = pa.array([body, body.replace(b"abcdef", b"abcd\\u0065f")] * 3, pa.binary())
    needs_exact = np.zeros(len(values), np.uint8)
    locate(Layout(columns), values, needs_exact, bytes_max=1 << 20)
    assert not needs_exact.any()
