"""Chooses the encodings of a Parquet file's columns from a sample of its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from tallystick.engine.conform import entries_of
from tallystick.tables.schema import uuid_bytes

SAMPLE_ROWS = 4096
DIFFERENCES, LENGTHS = "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY"


def encodings_of(sample: pa.Table, version: int) -> tuple[list[str], dict[str, str]]:
    """Return the columns that get a dictionary, and the encodings of others; the rest is stored as it is.

    `version`: of Parquet; if it is 1, only lineage columns have an encoding that version 2 added: offsets and timestamps
    ascend, and stored as differences they take a tenth of the bytes.
    """
    repeating, others = _repeating(sample)
    encodings = {name: DIFFERENCES for name in others if name in ("_offset", "_timestamp")}
    if version == 2:
        encodings |= {name: found for name, kind in others.items() if (found := _encoding(kind))}
    return repeating, encodings


def _repeating(sample: pa.Table) -> tuple[list[str], dict[str, pa.DataType]]:
    """Return the columns whose first rows repeat values, and the others with their types.

    Only the former get a dictionary, which does not help the others.
    """
    head = sample.slice(0, SAMPLE_ROWS).combine_chunks()
    repeating: list[str] = []
    others: dict[str, pa.DataType] = {}
    for one in head.schema:
        for path, values in _leaves(one.name, head.column(one.name)):
            if not pa.types.is_boolean(values.type) and pc.count_distinct(
                values
            ).as_py() * 4 <= len(values):
                repeating.append(path)
            else:
                others[path] = values.type
    return repeating, others


def _encoding(kind: pa.DataType) -> str | None:
    """Return the encoding of Parquet 2 for a column without a dictionary (Parquet format, Encodings); None: as in 1."""
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return DIFFERENCES
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return LENGTHS
    return None


def _leaves(
    path: str, values: pa.Array | pa.ChunkedArray
) -> Iterator[tuple[str, pa.Array | pa.ChunkedArray]]:
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


def _whole(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
