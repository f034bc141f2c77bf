"""The compiled kernels and the exact rules give the same rows for any values."""

from __future__ import annotations

import base64
import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.engine.decode.decoder import Reason
from tallystick.engine.decode.json.exact import ExactRow
from tallystick.engine.decode.json.parsed import MismatchError
from tallystick.engine.decode.json.rows import JsonDecoder
from tallystick.pipeline import Column, Json

COLUMNS = [
    Column("i", "int", required=False),
    Column("l", "long", required=False),
    Column("f", "float", required=False),
    Column("d", "double", required=False),
    Column("n", "decimal(11,3)", required=False),
    Column("w", "decimal(38,9)", required=False),
    Column("o", "boolean", required=False),
    Column("s", "string", required=False),
    Column("b", "binary", required=False),
    Column("day", "date", required=False),
    Column("ts", "timestamptz", required=False),
    Column("tn", "timestamp", required=False),
    Column("e", "timestamptz", required=False, parse="epoch_ms"),
    Column("es", "timestamp", required=False, parse="epoch_s"),
    Column("p", "timestamptz", required=False, parse="%Y-%m-%dT%H:%M:%S%z"),
]
DECODER = JsonDecoder(Json(COLUMNS))
EXACT = ExactRow(COLUMNS)


def halfway(number: float) -> str:
    """Return all digits of the middle between a float and the next larger one, which rounding twice gets wrong."""
    least = Fraction(1, 2**149)
    ulp = max(Fraction(2) ** (math.frexp(number)[1] - 24), least) if number else least
    middle = Fraction(number) + ulp / 2
    # 2**-150, half of the smallest step, has 150 decimals.
    whole, part = divmod(int(middle * 10**150), 10**150)
    return f"{whole}.{part:0150d}"


digits = st.text("0123456789", min_size=1, max_size=22)
halves = st.builds(
    "{}{}".format,
    st.floats(0, 2.0**60, width=32).map(halfway),
    st.sampled_from(["", "000", "0001"]),
)
numbers = st.one_of(
    halves,
    st.integers(-(2**45), 2**45).map(lambda n: f"{n}.{'0' * 30}"),
    st.integers(-(2**64), 2**64).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.builds(
        "{}{}{}{}".format,
        st.sampled_from(["", "-", "+"]),
        digits,
        st.one_of(st.just(""), digits.map(lambda d: f".{d}"), st.just(".000"), st.just(".")),
        st.one_of(st.just(""), st.integers(-30, 30).map(lambda e: f"e{e}"), st.just("E+2")),
    ),
)
instants = st.builds(
    "{:04d}-{:02d}-{:02d}{}{:02d}:{:02d}:{:02d}{}{}".format,
    st.one_of(st.integers(1960, 2040), st.integers(0, 9999)),
    st.integers(0, 13),
    st.integers(0, 32),
    st.sampled_from(["T", " ", "t"]),
    st.integers(0, 24),
    st.integers(0, 60),
    st.integers(0, 60),
    st.sampled_from(["", ".5", ".123456", ".1234567", ".1200000", "."]),
    st.sampled_from(["", "Z", "+01:00", "-1130", "+05", "+24:00", "z"]),
)
days = st.builds(
    "{:04d}-{:02d}-{:02d}".format, st.integers(0, 9999), st.integers(0, 13), st.integers(0, 32)
)
# Escapes, raw multi-byte text, halves of surrogate pairs, and valid and invalid base64.
strings = st.one_of(
    st.text().map(json.dumps),
    st.text(st.characters(exclude_categories=["Cs"])).map(
        lambda t: json.dumps(t, ensure_ascii=False)
    ),
    st.binary(max_size=12).map(lambda b: json.dumps(base64.b64encode(b).decode())),
    st.text("Aa0/+= ", max_size=8).map(json.dumps),
    st.sampled_from([r'"\ud83d\ude00"', r'"\ud83d"', r'"\u0000"', r'"\/"', r'"\x"']),
    numbers.map(lambda n: f'"{n}"'),
    instants.map(lambda t: f'"{t}"'),
    days.map(lambda t: f'"{t}"'),
)
scalars = st.one_of(numbers, strings, st.sampled_from(["true", "false", "null", "NaN", "nul"]))
blanks = st.sampled_from(["", " ", "\n\t"])
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda v: f"[{' , '.join(v)}]"),
        st.lists(st.tuples(strings, inner), max_size=3).map(
            lambda v: "{" + ",".join(f"{a}:{b}" for a, b in v) + "}"
        ),
    ),
    max_leaves=5,
)
names = st.one_of(st.sampled_from([f'"{c.name}"' for c in COLUMNS]), strings)
objects = st.builds(
    lambda pairs, a, b, end: a + "{" + b + ",".join(f"{k}{a}:{b}{v}" for k, v in pairs) + "}" + end,
    st.lists(st.tuples(names, values), max_size=8),
    blanks,
    blanks,
    st.sampled_from(["", "", "", " ", "x", "}"]),
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    body = bytearray(draw(st.one_of(objects, objects, values)).encode("utf-8", "surrogatepass"))
    if draw(st.integers(0, 3)) == 0 and body:
        # Damage of any kind: a byte is changed or removed, or everything after it is lost.
        at = draw(st.integers(0, len(body) - 1))
        kind = draw(st.integers(0, 2))
        body[at : at + 1 if kind < 2 else len(body)] = (
            bytes([draw(st.integers(0, 255))]) if kind == 0 else b""
        )
    return bytes(body)


def exactly(body: bytes) -> Any:
    try:
        return EXACT.decode(body)
    except MismatchError as mismatch:
        return mismatch.reason


@settings(max_examples=120, deadline=None)
@given(st.lists(bodies(), min_size=1, max_size=12))
def test_kernels_and_exact_rules_agree_on_every_row(batch: list[bytes]) -> None:
    expected = [exactly(body) for body in batch]
    decoded = DECODER.decode_values(pa.array(batch, pa.binary()))

    good = [i for i, e in enumerate(expected) if isinstance(e, list)]
    assert decoded.kept.tolist() == good
    assert list(decoded.reasons) == [e for e in expected if isinstance(e, Reason)]
    decoded.rows.validate(full=True)
    table = DECODER.table([expected[i] for i in good])
    assert decoded.rows.cast(table.schema) == table


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(COLUMNS), st.lists(st.one_of(numbers, strings), min_size=1, max_size=20))
def test_kernels_and_exact_rules_agree_on_single_values(column: Column, texts: list[str]) -> None:
    batch = [f'{{"{column.name}":{text}}}'.encode("utf-8", "surrogatepass") for text in texts]
    expected = [exactly(body) for body in batch]
    decoded = DECODER.decode_values(pa.array(batch, pa.binary()))
    assert decoded.rows == DECODER.table([e for e in expected if isinstance(e, list)])


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(halves, st.floats(width=64, allow_nan=False, min_value=0, max_value=1e38).map(repr))
)
def test_a_float_is_the_nearest_to_its_text(text: str) -> None:
    found = exactly(f'{{"f":{text}}}'.encode())[2]
    exact = Fraction(text)
    distance = abs(Fraction(found) - exact)
    for side in (-np.inf, np.inf):
        neighbour = float(np.nextafter(np.float32(found), np.float32(side)))
        assert math.isinf(neighbour) or distance <= abs(Fraction(neighbour) - exact)
