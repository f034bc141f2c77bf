"""The encodings of Parquet files, by the version of the table's upkeep, and other readers of the same files."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tallystick.engine.encodings import encodings_of
from tallystick.engine.parquet import parquet_writer

ROWS = 5_000
START = datetime(2026, 3, 1, tzinfo=UTC)
LEVELS = {"RLE", "RLE_DICTIONARY", "PLAIN_DICTIONARY", "PLAIN"}
KINDS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "id": (pa.string(), lambda n: f"{n * 7919 % 99991:x}-é-{n}"),
    "kind": (pa.string(), lambda n: "ab"[n % 2]),
    "user": (pa.int64(), lambda n: (n * 104_729 % 1_000_003 - 500_000) * 2**30),
    "count": (pa.int32(), lambda n: n * 31 % 100_003),
    "price": (pa.float64(), lambda n: n / 7),
    "is_open": (pa.bool_(), lambda n: n % 3 == 0),
    "body": (pa.binary(), lambda n: None if n % 5 == 0 else n.to_bytes(4, "big") * (n % 4)),
    "day": (pa.date32(), lambda n: date(2026, 1, 1) + timedelta(days=n)),
    "at_time": (pa.time64("us"), lambda n: time(n % 24, n % 60, n % 60, n)),
    "at": (pa.timestamp("us", tz="UTC"), lambda n: START + timedelta(microseconds=n * n)),
    "amount": (pa.decimal128(12, 2), lambda n: decimal.Decimal(n) / 100),
    "place": (
        pa.struct([("city", pa.string()), ("zone", pa.int64())]),
        lambda n: None if n % 11 == 0 else {"city": f"city {n}", "zone": -n * n},
    ),
    "parts": (pa.list_(pa.string()), lambda n: None if n % 13 == 0 else [f"p{n}"] * (n % 3)),
    "_offset": (pa.int64(), lambda n: n + 10**12),
    "_timestamp": (pa.timestamp("us", tz="UTC"), lambda n: START + timedelta(milliseconds=14 * n)),
}


@pytest.fixture
def rows() -> pa.Table:
    return pa.table(
        {
            name: pa.array([make(n) for n in range(ROWS)], kind)
            for name, (kind, make) in KINDS.items()
        }
    )


def write(path: Path, rows: pa.Table, *, version: int) -> Path:
    with pa.OSFile(str(path), "wb") as sink, parquet_writer(sink, rows, version=version) as writer:
        writer.write_table(rows)
    return path


def encodings(path: Path) -> dict[str, set[str]]:
    """Return the encodings of each column that only some files have."""
    group = pq.read_metadata(path).row_group(0)
    columns = (group.column(number) for number in range(group.num_columns))
    return {one.path_in_schema: set(one.encodings) - LEVELS for one in columns}


def test_version_1_stores_only_offsets_and_timestamps_as_differences(
    rows: pa.Table, tmp_path: Path
) -> None:
    found = encodings(write(tmp_path / "one.parquet", rows, version=1))
    assert {name: one for name, one in found.items() if one} == {
        "_offset": {"DELTA_BINARY_PACKED"},
        "_timestamp": {"DELTA_BINARY_PACKED"},
    }


def test_version_2_stores_differences_and_lengths_of_columns_without_a_dictionary(
    rows: pa.Table, tmp_path: Path
) -> None:
    found = encodings(write(tmp_path / "two.parquet", rows, version=2))
    numbers = ("user", "count", "day", "at_time", "at", "place.zone", "_offset", "_timestamp")
    texts = ("id", "body", "place.city", "parts.list.element")
    assert {name: one for name, one in found.items() if one} == {
        **{name: {"DELTA_BINARY_PACKED"} for name in numbers},
        **{name: {"DELTA_LENGTH_BYTE_ARRAY"} for name in texts},
    }


@pytest.mark.parametrize("version", [1, 2])
def test_other_readers_find_the_rows_of_both_versions(
    rows: pa.Table, tmp_path: Path, version: int
) -> None:
    path = write(tmp_path / "rows.parquet", rows, version=version)
    wanted = rows.to_pylist()
    assert pq.read_table(path).to_pylist() == wanted
    assert polars.read_parquet(path).to_dicts() == wanted
    with duckdb.connect() as connection:
        found = connection.sql(f"select * from read_parquet('{path}')").to_arrow_table()
    assert found.cast(rows.schema).to_pylist() == wanted


def test_files_of_version_2_are_smaller(rows: pa.Table, tmp_path: Path) -> None:
    one, two = (write(tmp_path / f"{v}.parquet", rows, version=v).stat().st_size for v in (1, 2))
    assert two < one


MANY = 120_000


def by_chance(different: int, rows: int = MANY) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.random.default_rng(7).integers(0, different, rows)


def texts(numbers: np.ndarray[Any, np.dtype[np.int64]], *, width: int = 8) -> pa.Array:
    return pa.array([f"{number * 7919:0{width}d}" for number in numbers.tolist()])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param(texts(by_chance(4)), True, id="four"),
        pytest.param(texts(by_chance(5_000)), True, id="each 24 times"),
        pytest.param(pa.array(by_chance(5_000) / 100), True, id="prices"),
        pytest.param(texts(by_chance(12_000)), False, id="each 10 times"),
        pytest.param(texts(by_chance(5_000), width=150), False, id="more than a page"),
        pytest.param(texts(np.arange(MANY)), False, id="all different"),
        # Of the first ones a half are different, as of 640 that come by chance.
        pytest.param(pa.array(np.arange(MANY) // 2), False, id="ascending pairs"),
        pytest.param(pa.array([None, 1.5] * (MANY // 2)), True, id="a half are null"),
        pytest.param(pa.nulls(MANY, pa.string()), True, id="null"),
        pytest.param(texts(by_chance(900, 2_000)), False, id="few rows"),
        pytest.param(texts(by_chance(400, 2_000)), True, id="few rows that repeat"),
        pytest.param(pa.array([], pa.string()), True, id="no rows"),
    ],
)
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("nested", [False, True])
def test_columns_whose_values_repeat_have_a_dictionary(
    values: pa.Array, expected: bool, parts: int, nested: bool
) -> None:
    if nested:
        values = pa.StructArray.from_arrays([values], ["inner"])
    size = len(values) // parts + 1
    chunks = [values.slice(at, size) for at in range(0, max(len(values), 1), size)]
    repeating, _ = encodings_of(pa.table({"a": pa.chunked_array(chunks, values.type)}), 1)
    assert repeating == (["a.inner" if nested else "a"] if expected else [])


def test_a_dictionary_of_values_that_repeat_makes_the_file_smaller(tmp_path: Path) -> None:
    rows = pa.table({"page": texts(by_chance(5_000)), "price": pa.array(by_chance(5_000) / 100)})
    path = write(tmp_path / "by_chance.parquet", rows, version=1)
    without = tmp_path / "without.parquet"
    pq.write_table(rows, without, use_dictionary=False, compression="zstd", compression_level=1)
    assert path.stat().st_size < 0.8 * without.stat().st_size
    assert pq.read_table(path) == rows


def test_the_same_rows_have_the_same_encodings() -> None:
    rows = pa.table({"page": texts(by_chance(7_400))})
    assert len({str(encodings_of(rows, 1)) for _ in range(5)}) == 1
