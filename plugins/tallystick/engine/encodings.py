"""Chooses the encodings of a Parquet file's columns from a sample of its rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.engine.conform import entries_of
from tallystick.tables.schema import uuid_bytes

# Of as many rows all are looked at; of more the first ones, and some of all parts.
ALL_ROWS = 4096
HEAD_ROWS, SOME_ROWS = 1024, 2048
_REPEATED_IN_HEAD = 4
_REPEATED = 16
# PyArrow writes no dictionary any more when its page has a megabyte.
_DICTIONARY_BYTES = 1 << 19
_Values: TypeAlias = pa.Array | pa.ChunkedArray
DIFFERENCES, LENGTHS = "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY"


def encodings_of(rows: pa.Table, version: int) -> tuple[list[str], dict[str, str]]:
    """Return the columns that get a dictionary, and the encodings of others; the rest is stored as it is.

    `rows`: the first ones of the file. `version`: of Parquet; if it is 1, only lineage columns have an encoding that
    version 2 added: offsets and timestamps ascend, and stored as differences they take a tenth of the bytes.
    """
    repeating, others = _repeating(rows)
    encodings = {name: DIFFERENCES for name in others if name in ("_offset", "_timestamp")}
    if version == 2:
        encodings |= {name: found for name, kind in others.items() if (found := _encoding(kind))}
    return repeating, encodings


def _repeating(rows: pa.Table) -> tuple[list[str], dict[str, pa.DataType]]:
    """Return the columns whose values repeat, and the others with their types.

    Only the former get a dictionary, which does not help the others.
    """
    few = rows.num_rows <= ALL_ROWS
    head = (rows if few else rows.slice(0, HEAD_ROWS)).combine_chunks()
    share = rows.num_rows / max(len(head), 1)
    repeating: list[str] = []
    others: dict[str, pa.DataType] = {}
    for one in head.schema:
        for path, values in _leaves(one.name, head.column(one.name)):
            if not pa.types.is_boolean(values.type) and _repeats(
                values, len(values) * share, partial(_some_of, rows, one.name, path)
            ):
                repeating.append(path)
            else:
                others[path] = values.type
    return repeating, others


def _repeats(head: _Values, count: float, some: Callable[[], _Values]) -> bool:
    """Return True if the values of a column repeat: in its head, or among those of all parts, which `some` returns.

    `count`: how many values the column has. Values that ascend repeat in neighbours only.
    """
    different = pc.count_distinct(head).as_py()
    if different * _REPEATED_IN_HEAD <= len(head):
        return True
    if different > _different_max(head, count):
        return False
    found = some()
    return bool(pc.count_distinct(found).as_py() <= _different_max(found, count))


def _different_max(some: _Values, count: float) -> float:
    """Return how many different values `some` of `count` values have at most if a dictionary makes the column smaller.

    It has to fit its page, and each of its values has to occur 16 times on average. If D values are equally frequent, n
    rows have D * (1 - exp(-n / D)) different ones.
    """
    if not len(some):
        return 0.0
    width = max(1.0, some.nbytes / len(some))
    most = min(count / _REPEATED, _DICTIONARY_BYTES / width)
    return float(most * -math.expm1(-len(some) / most))


def _some_of(rows: pa.Table, name: str, path: str) -> _Values:
    """Return the values of a primitive column in up to SOME_ROWS rows of all parts. The same rows return the same."""
    chunks = rows.column(name).chunks
    places = np.unique(_scattered(SOME_ROWS) % np.uint64(rows.num_rows)).astype(np.int64)
    starts = np.cumsum([0, *map(len, chunks)])
    inside = np.split(places, np.searchsorted(places, starts[1:-1]))
    taken = [
        chunk.take(pa.array(found - start))
        for chunk, found, start in zip(chunks, inside, starts[:-1], strict=True)
    ]
    whole = pa.chunked_array(taken, rows.schema.field(name).type)
    return dict(_leaves(name, whole))[path]


def _scattered(count: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return numbers of 64 bits as if by chance, always the same (SplitMix64); numpy's own take 0.1 seconds to load."""
    number = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        number = (number ^ (number >> np.uint64(shift))) * np.uint64(factor)
    return number ^ (number >> np.uint64(31))


def _encoding(kind: pa.DataType) -> str | None:
    """Return the encoding of Parquet 2 for a column without a dictionary (Parquet format, Encodings); None: as in 1."""
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return DIFFERENCES
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return LENGTHS
    return None


def _leaves(path: str, values: _Values) -> Iterator[tuple[str, _Values]]:
    """Yield the primitive columns of a column, by their paths (Parquet format, Nested Types)."""
    kind = values.type
    if pa.types.is_struct(kind):
        for number, child in enumerate(values.flatten()):
            yield from _leaves(f"{path}.{kind.field(number).name}", child)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value", entries_of(_whole(values)))
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", _whole(values).flatten())
    else:
        yield path, uuid_bytes(values)


def _whole(values: _Values) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
