"""Columns with one plain value per record are read block by block: the rows are those of the exact rules."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from tallystick.engine.decode.json import flat
from tallystick.engine.decode.json.exact import ExactRow
from tallystick.engine.decode.json.flat import FlatColumns
from tallystick.engine.decode.json.layout import Layout
from tallystick.engine.decode.json.parsed import MismatchError
from tallystick.engine.decode.json.rows import JsonDecoder
from tallystick.pipeline import Column, Json

COLUMNS = [
    Column("id", "string"),
    Column("n", "int", required=False),
    Column("l", "long", required=False),
    Column("at", "timestamptz", required=False, parse="epoch_ms"),
    Column("day", "date", required=False, parse="epoch_days"),
    Column("d", "double", required=False),
    Column("f", "float", required=False),
    Column("text", "string", required=False),
    Column("deep", "struct<k: string, m: long, in: struct<x: double>>", required=False),
    Column("far", "string", required=False, source="path.to"),
    # Those are read column by column.
    Column("on", "boolean", required=False),
    Column("tags", "list<string>", required=False),
    Column("raw", "string", required=False, parse="json"),
]
EXACT = ExactRow(COLUMNS)
VALUES: dict[str, list[str]] = {
    "n": ["1", "-7", "null", "1e2", "2147483648", '"1"'],
    "l": ["0", "-9223372036854775808", "9223372036854775808", "1.0", "true"],
    "at": ["0", "1772355600000", "null", "99999999999999999"],
    "day": ["20000", "-1", "9999999"],
    "d": ["0.1", "1e-320", "123456789012345678901234567890", "null", '"x"'],
    "f": ["0.5", "16777217", "1e39"],
    "text": ['""', '"a"', '"\\u00e9\\n"', '"\\ud800"', '"' + "long" * 40 + '"', "null", "3"],
    "deep": ['{"k": "x", "m": 3, "in": {"x": 0.25}}', '{"k": null}', "null", "[]", '{"m": "3"}'],
    "path": ['{"to": "there"}', '{"to": null}', "null", "7"],
    "on": ["true", "false", "null", "0"],
    "tags": ["[]", '["a", "b"]', "null", "[1]"],
    "raw": ['{"p": [1]}', "null", '"q"'],
}


def records(seed: int, count: int) -> list[bytes]:
    """Return records of several shapes, some with values that no row can have."""
    chance = random.Random(seed)
    return [record(chance, number) for number in range(count)]


def record(chance: random.Random, number: int) -> bytes:
    names = [name for name in VALUES if chance.random() < 0.8]
    # Mostly the first of the values, so that most records become rows.
    given = {
        name: VALUES[name][0 if chance.random() < 0.9 else chance.randrange(len(VALUES[name]))]
        for name in names
    }
    fields = [f'"id": "{number:x}"', *(f'"{name}": {value}' for name, value in given.items())]
    return ("{" + ", ".join(fields) + "}").encode()


def expected(values: list[bytes]) -> tuple[list[list[Any]], list[int]]:
    rows, dead = [], []
    for position, value in enumerate(values):
        try:
            rows.append(EXACT.decode(value))
        except MismatchError:
            dead.append(position)
    return rows, dead


@pytest.mark.parametrize("block_rows", [1, 2, 7, 64, 399, 400, 1_000])
@pytest.mark.parametrize("seed", [1, 2])
def test_blocks_of_any_size_give_the_rows_of_the_exact_rules(
    seed: int, block_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flat, "_block_rows", lambda *_: block_rows)
    values = records(seed, 400)
    rows, dead = expected(values)
    assert 50 < len(dead) < 300
    decoder = JsonDecoder(Json(COLUMNS))
    decoded = decoder.decode_values(pa.array(values, pa.binary()))
    assert decoded.dead.tolist() == dead
    assert decoded.rows.equals(decoder.table(rows))
    decoded.rows.validate(full=True)


def test_only_columns_with_one_plain_value_per_record_are_read_together() -> None:
    found = FlatColumns.of(Layout(COLUMNS).places)
    assert [place.column.name for place, _ in found.whole] == ["n", "l", "at", "day", "m"]
    assert [place.column.name for place in found.double] == ["d", "f", "x"]
    assert [place.column.name for place in found.text] == ["id", "text", "k", "far"]


@pytest.mark.parametrize(
    ("record_bytes", "rows", "found"),
    [(256, 60_000, 1_024), (10, 60_000, 8_192), (1 << 20, 100, 64), (0, 0, 64)],
)
def test_the_text_of_a_block_fits_a_cache(record_bytes: int, rows: int, found: int) -> None:
    assert flat._block_rows(record_bytes * rows, rows) == found
