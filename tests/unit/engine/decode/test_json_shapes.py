"""A record that has the shape of an earlier one is read without the grammar: its row is that of the exact rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.engine.decode.json.exact import ExactRow
from tallystick.engine.decode.json.layout import Layout
from tallystick.engine.decode.json.locate import PAGE_SLOTS, Found, find_values, locate
from tallystick.engine.decode.json.parsed import MismatchError
from tallystick.engine.decode.json.rows import JsonDecoder
from tallystick.engine.decode.json.shape import MISSES_MAX, PAUSE_ROWS, STEPS_MAX
from tallystick.pipeline import Column, Json

COLUMNS = [
    Column("id", "string", required=False),
    Column("n", "long", required=False),
    Column("on", "boolean", required=False),
    Column("deep", "struct<k: string, m: long>", required=False),
    Column("tags", "list<string>", required=False),
    Column("more", "map<string, long>", required=False),
    Column("far", "string", required=False, source="path.to.it"),
    Column("first", "long", required=False, source="pairs[0]"),
    Column("text", "string", required=False, parse="json"),
]
DECODER = JsonDecoder(Json(COLUMNS))
EXACT = ExactRow(COLUMNS)
# Every kind of step: scalars of columns and others, objects inside of each other, and what no column reads as a whole.
BODY = (
    b'{"id": "a-1", "n" :12,"deep": {"k": "x", "other": [1, {"y": 2}], "m": -3}, "path":{"to":{"it":"z"}, "b":1.5e3},\n'
    b' "skipped": {"a": [], "b": {}}, "text": {"p": [1]}, "on": true, "none": null, "last": "\\u00e9\xc3\xa9"} '
)


def exactly(body: bytes) -> Any:
    try:
        return dict(zip((c.name for c in COLUMNS), EXACT.decode(body), strict=True))
    except MismatchError as mismatch:
        return mismatch.reason


def decoded(bodies: list[bytes]) -> list[Any]:
    """Return the row of each value, or the reason why there is none."""
    found = DECODER.decode_values(pa.array(bodies, pa.binary()))
    rows: dict[int, Any] = dict(zip(found.kept.tolist(), found.rows.to_pylist(), strict=True))
    rows |= dict(zip(found.dead.tolist(), found.reasons, strict=True))
    return [rows[number] for number in range(len(bodies))]


def hits(bodies: list[bytes], columns: list[Column] | None = None) -> int:
    """Return how many of the records were read by a shape."""
    layout = Layout(columns or COLUMNS)
    values = pa.array(bodies, pa.binary())
    found: Found = locate(layout, values, np.zeros(len(bodies), np.uint8), bytes_max=1 << 20)
    arrays = found.arrays
    for array in (arrays.kinds, arrays.length, arrays.used):
        array[:] = 0
    offsets = np.frombuffer(values.buffers()[1], np.int32)[: len(bodies) + 1]
    needs_exact = np.zeros(len(bodies), np.uint8)
    row, count = find_values(found.text, offsets, 0, 0, 1 << 20, layout.arrays, arrays, needs_exact)
    assert row == len(bodies)
    return int(count)


def between(bodies: list[bytes]) -> list[bytes]:
    """Return the bodies with two of the shape before each, so that it is compared with the shape."""
    return [one for body in bodies for one in (BODY, BODY, body)] + [BODY]


def test_records_of_one_shape_are_read_by_it() -> None:
    others = [BODY.replace(b"12", str(n).encode()) for n in range(100)]
    assert hits([BODY, *others]) == len(others)
    assert decoded([BODY, *others]) == [exactly(body) for body in [BODY, *others]]


@pytest.mark.parametrize("byte", b' "x0{}[]:,\\\x00\x80')
def test_a_byte_in_place_of_any_other(byte: int) -> None:
    bodies = between([BODY[:at] + bytes([byte]) + BODY[at + 1 :] for at in range(len(BODY))])
    assert decoded(bodies) == [exactly(body) for body in bodies]


@pytest.mark.parametrize("byte", b' "x0{}[]:,\\\x00\x80')
def test_a_byte_more_at_any_place(byte: int) -> None:
    bodies = between([BODY[:at] + bytes([byte]) + BODY[at:] for at in range(len(BODY) + 1)])
    assert decoded(bodies) == [exactly(body) for body in bodies]


def test_a_byte_less_at_any_place_and_an_end_at_any_place() -> None:
    bodies = between([BODY[:at] + BODY[at + 1 :] for at in range(len(BODY))])
    bodies += between([BODY[:at] for at in range(len(BODY))])
    assert decoded(bodies) == [exactly(body) for body in bodies]


# A value in place of another one, also of another kind.
VALUES = [
    "null",
    "true",
    "7",
    "-0.5",
    '"t"',
    '"\\n"',
    "{}",
    "[]",
    '{"k":"v"}',
    "[1,2]",
    '{"to":{}}',
]


@pytest.mark.parametrize(
    "name", ["id", "n", "deep", "tags", "more", "path", "pairs", "text", "other"]
)
def test_values_of_any_kind_in_place_of_each_other(name: str) -> None:
    texts = [f'{{"id":"i","{name}":{value},"z":1}}'.encode() for value in VALUES]
    if name == "id":
        texts = [text.replace(b'"id":"i",', b"") for text in texts]
    for shape in texts:
        bodies = [one for text in texts for one in (shape, shape, text, shape)]
        assert decoded(bodies) == [exactly(body) for body in bodies]


# Numbers of all forms, of up to more digits than are looked at at once, and what is none.
NUMBERS = [
    *("0", "-0", "7", "-7", "0.5", "-0.5", "10.25", "1e5", "1E5", "1.5e3", "2.5E-1", "1e", "1.5e"),
    *("01", "-01", "00", "01.5", "-", "--1", "-x", "1.", "-1.", "1.x", "1.-5", "1.5.5", ".5", "1-"),
    *("1x", "1.5x", "1 x", "+1", "1,", "1.5,"),
    *("1" * size for size in (14, 15, 16, 17, 18, 19, 20, 40)),
    *("0." + "1" * size for size in (12, 13, 14, 15, 16, 30)),
    *("1" * size + ".5" for size in (12, 13, 14, 15, 16)),
]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("name", ["n", "other"])
def test_numbers_of_any_form(name: str, number: str) -> None:
    shape = f'{{"{name}":12, "id": "i"}}'.encode()
    for text in (
        f'{{"{name}":{number}, "id": "i"}}',
        f'{{"{name}":{number}}}',
        f'{{"{name}":{number}',
    ):
        bodies = [shape, shape, text.encode(), shape, shape, text.encode()]
        assert decoded(bodies) == [exactly(body) for body in bodies]


@pytest.mark.parametrize("inner", ["", '\\"', "é", "\x01", '"', "\\"])
@pytest.mark.parametrize("behind", ['"}', '"', ""])
def test_strings_of_any_length(inner: str, behind: str) -> None:
    """Also at the end of all text, and if the next quote is one of the next record."""
    for size in (0, 1, 6, 7, 8, 22, 23, 24, 30, 31, 32, 33, 40, 64, 65):
        text = f'{{"n":1, "id": "{"x" * size}{inner}{behind}'.encode()
        bodies = [b'{"n":1, "id": "i"}'] * 2 + [
            text,
            b'{"n":1, "id": "i"}',
            b'{"n":1, "id": "i"}',
            text,
        ]
        assert decoded(bodies) == [exactly(body) for body in bodies]


@pytest.mark.parametrize("number", ["5", "-5", "12.5", "0", "123456789012345"])
def test_short_values_are_read_by_the_shape(number: str) -> None:
    bodies = [f'{{"n":{value}, "id": "i"}}'.encode() for value in ("1", "2", number, "3")]
    assert hits(bodies) == 3


scalars = st.sampled_from(["1", "-20", "1.5", "null", "true", '"s"', '"\\u0041"', '"é"', '"', "x"])
nested = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda v: f"[{','.join(v)}]"),
        st.lists(st.tuples(st.sampled_from(["k", "m", "to", "it", "q"]), inner), max_size=3).map(
            lambda v: "{" + ", ".join(f'"{a}": {b}' for a, b in v) + "}"
        ),
    ),
    max_leaves=4,
)
fields = st.tuples(
    st.sampled_from(["id", "n", "on", "deep", "tags", "more", "path", "pairs", "text", "zz"]),
    nested,
)


@st.composite
def batches(draw: st.DrawFn) -> list[bytes]:
    """Draw records of a few shapes, whose scalars differ, in runs and mixed."""
    shapes = draw(st.lists(st.lists(fields, max_size=6), min_size=1, max_size=3))
    found = []
    for number in draw(st.lists(st.integers(0, len(shapes) - 1), min_size=3, max_size=30)):
        shape = [
            (name, draw(scalars) if draw(st.booleans()) and value[0] not in "[{" else value)
            for name, value in shapes[number]
        ]
        found.append("{" + ",".join(f'"{name}":{value}' for name, value in shape) + "}")
    return [text.encode() for text in found]


@settings(max_examples=200, deadline=None)
@given(batches())
def test_batches_of_mixed_shapes_are_those_of_the_exact_rules(batch: list[bytes]) -> None:
    assert decoded(batch) == [exactly(body) for body in batch]


def one_of_two(first: bytes, second: bytes, pattern: str) -> list[bytes]:
    return [first if letter == "a" else second for letter in pattern]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("aaaa", 3),
        ("aaba", 2),  # one record of another shape does not replace the shape
        ("aabbbb", 3),  # two in a row do
        ("ab" * 10, 9),  # of every two, one has the shape
        (
            "aabb" * 3,
            1,
        ),  # each second one of a pair gives a shape, which the next pair does not have
    ],
)
def test_which_records_are_read_by_a_shape(pattern: str, expected: int) -> None:
    bodies = one_of_two(b'{"id":"x","n":1}', b'{"n":1,"id":"x"}', pattern)
    assert hits(bodies) == expected
    assert decoded(bodies) == [exactly(body) for body in bodies]


def test_shapes_pause_if_most_records_differ() -> None:
    def differing(count: int) -> list[bytes]:
        return [f'{{"field{n}":1}}'.encode() for n in range(count)]

    same = [b'{"id":"x"}'] * 50
    assert hits(differing(500)) == 0
    # The first record gives a shape; each of the next ones differs from the shape before it.
    assert hits(differing(20) + same) == 49
    assert hits(differing(2 + MISSES_MAX) + same) == 0
    assert hits(differing(1 + MISSES_MAX + PAUSE_ROWS) + same) == 49
    # Hits before allow for more misses, but not for any number. Here the second of the last gives their shape.
    assert hits(same * 10 + differing(2 * MISSES_MAX - 2) + same) == 499 + 48
    assert hits(same * 10 + differing(2 * MISSES_MAX + 1) + same) == 499


def test_a_record_with_too_many_fields_gives_no_shape() -> None:
    def body(fields: int) -> bytes:
        return ("{" + ",".join(f'"f{n}":1' for n in range(fields)) + "}").encode()

    # The object's begin and end and the record's end are steps, too.
    assert hits([body(STEPS_MAX - 3)] * 3) == 2
    for more in (-2, -1, 0, 1):
        assert hits([body(STEPS_MAX + more)] * 3) == 0
        # The next records have a shape again.
        assert hits([body(STEPS_MAX + more)] + [b'{"id":"x"}'] * 3) == 2
    assert decoded([body(STEPS_MAX)] * 3) == [exactly(body(STEPS_MAX))] * 3


# A value of a kind that the column cannot have, and the column.
WRONG = [
    ("long", '"1"'),
    ("int", "true"),
    ("double", '"1.5"'),
    ("float", "false"),
    ("decimal(9,2)", "true"),
    ("boolean", "1"),
    ("string", "1"),
    ("string", "[1]"),
    ("long", '{"a":1}'),
    ("list<long>", '["1"]'),
    ("map<string, long>", '{"a":"1"}'),
    ("struct<a: long>", '{"a":"1"}'),
]


@pytest.mark.parametrize(("kind", "wrong"), WRONG)
def test_a_record_with_a_value_of_a_wrong_kind_takes_no_slot(kind: str, wrong: str) -> None:
    """So the columns that are read have no row of it, and no rows must be taken out of them."""
    columns = [Column("id", "long"), Column("v", kind, required=False)]
    bodies = [b'{"id":%d,"v":null}' % n for n in range(3)]
    bodies.insert(1, b'{"id":9,"v":%b}' % wrong.encode())
    layout = Layout(columns)
    needs_exact = np.zeros(4, np.uint8)
    found = locate(layout, pa.array(bodies, pa.binary()), needs_exact, bytes_max=1 << 20)
    assert needs_exact.tolist() == [0, 1, 0, 0]
    assert found.slots(0) == 3
    decoded = JsonDecoder(Json(columns)).decode_values(pa.array(bodies, pa.binary()))
    assert decoded.kept.tolist() == [0, 2, 3]
    assert decoded.rows.column("id").to_pylist() == [0, 1, 2]


def _with_lists() -> Iterator[bytes]:
    for count in range(5):
        yield b'{"id":"x","tags":[%b]}' % b",".join([b'"t"'] * count)
        yield b'{"id":"x","more":{%b}}' % b",".join(b'"k%d":1' % n for n in range(count))
        yield b'{"pairs":[%b]}' % b",".join([b"1"] * count)


def test_lists_maps_and_positions_that_columns_read_give_no_shape() -> None:
    bodies = [body for body in _with_lists() for _ in range(2)]
    assert hits(bodies) == 0
    assert decoded(bodies) == [exactly(body) for body in bodies]


def test_a_place_that_two_columns_read_gives_no_shape() -> None:
    twice = [
        Column("whole", "map<string, long>", required=False, source="m"),
        Column("one", "long", required=False, source="m.k"),
    ]
    bodies = [b'{"m":{"k":%d,"j":2}}' % n for n in range(5)]
    assert hits(bodies, twice) == 0
    rows = JsonDecoder(Json(twice)).decode_values(pa.array(bodies, pa.binary())).rows.to_pylist()
    assert rows == [{"whole": [("k", n), ("j", 2)], "one": n} for n in range(5)]
    assert hits([b'{"m":null,"x":1}'] * 5, twice) == 0


def test_kept_other_fields_give_no_shape() -> None:
    decoder = JsonDecoder(
        Json([Column("id", "string"), Column("rest", "string")], other_fields="rest")
    )
    bodies = [b'{"id":"x","n":%d}' % n for n in range(5)]
    rows = decoder.decode_values(pa.array(bodies, pa.binary())).rows.to_pylist()
    assert rows == [{"id": "x", "rest": f'{{"n":{n}}}'} for n in range(5)]


@pytest.mark.parametrize("rows", [PAGE_SLOTS, PAGE_SLOTS + 1, 2 * PAGE_SLOTS + 7])
def test_the_values_of_a_record_are_at_the_same_place_of_their_pages(rows: int) -> None:
    values = pa.array([BODY] * rows, pa.binary())
    unproven = np.zeros(rows, np.uint8)
    found = locate(Layout(COLUMNS), values, unproven, bytes_max=1 << 20)
    assert not unproven.any()
    for what in ("kinds", "begins", "sizes"):
        places = {found.of(node, what).ctypes.data % 4096 for node in range(3)}
        assert len(places) == 1
