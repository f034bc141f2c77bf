"""Reads the statistics of a Parquet file from its footer, in the form of Iceberg's manifest entries.

The task that wrote a file already has its footer; a commit would need three S3 requests per file to read it. Bounds have
Iceberg's single-value serialisation (Iceberg spec, Appendix D). Strings and binaries are truncated to 16 characters or
bytes, as in Iceberg's default metrics mode `truncate(16)`. An uncertain bound is left out: with a missing bound a reader
takes longer, with a wrong bound it misses rows.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from tallystick.errors import ReportRejected
from tallystick.format.columns import TableColumn
from tallystick.format.report import ColumnStatistics
from tallystick.format.types import LIST, MAP, STRUCT, decimal_size, fixed_bytes
from tallystick.tables.decimals import decimal_bytes
from tallystick.tables.schema import check_file_columns, table_columns

BOUND_LENGTH = 16
FIXED_BOUND_MAX = 64
_STRUCTS = {
    "boolean": "<?",
    "int": "<i",
    "date": "<i",
    "long": "<q",
    "time": "<q",
    "timestamp": "<q",
    "timestamptz": "<q",
    "float": "<f",
    "double": "<d",
}


def column_statistics(
    footer: pq.FileMetaData, columns: Sequence[TableColumn], *, where: str
) -> tuple[ColumnStatistics, ...]:
    """Return the statistics of every column of a file that was written with exactly the planned `columns`.

    A nested column has those of its parts that have values of their own. Inside of a list or a map they have no bounds:
    Iceberg has none for repeated values (Iceberg spec, Manifests, lower_bounds). The result has the file's column order.
    Error messages name `where` as the file. Raises SchemaChanged if the file's
    columns differ in id, name or type, and ReportRejected if the file has no rows or no null counts, or if a required
    column has a null.
    """
    check_file_columns(
        table_columns(footer.schema.to_arrow_schema(), where=where), columns, where=where
    )
    if footer.num_rows <= 0:
        raise _rejected(
            f"{where}: expected rows, found none.", "do not upload a file for a task without rows."
        )
    by_path = {leaf.path: leaf for leaf in _leaves(columns)}
    places = [
        (place, by_path[footer.schema.column(place).path]) for place in range(footer.num_columns)
    ]
    return tuple(_of_leaf(footer, place, leaf, where) for place, leaf in places)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaf:
    """A primitive column in a file: its path in Parquet, its repetition, and if each row has a value.

    A null of a required part is none if the struct around it is null.
    """

    column: TableColumn
    path: str
    repeated: bool
    in_each_row: bool


def _leaves(
    columns: Sequence[TableColumn], above: str = "", *, repeated: bool = False, present: bool = True
) -> Iterator[_Leaf]:
    """Yield the primitive columns at any depth, by their paths (Parquet format, Nested Types)."""
    for column in columns:
        path, always = f"{above}{column.name}", present and column.required
        if column.type == STRUCT:
            yield from _leaves(column.fields, f"{path}.", repeated=repeated, present=always)
        elif column.type in (LIST, MAP):
            group = "list" if column.type == LIST else "key_value"
            yield from _leaves(column.fields, f"{path}.{group}.", repeated=True, present=False)
        else:
            yield _Leaf(column=column, path=path, repeated=repeated, in_each_row=always)


def split_offsets(footer: pq.FileMetaData) -> tuple[int, ...]:
    """Return the offset of each row group in bytes, so that readers can split the file (Iceberg spec, field 132)."""
    return tuple(
        sorted(
            _row_group_offset(footer.row_group(i).column(0)) for i in range(footer.num_row_groups)
        )
    )


def _row_group_offset(chunk: pq.ColumnChunkMetaData) -> int:
    offset = int(chunk.data_page_offset)
    return min(offset, int(chunk.dictionary_page_offset)) if chunk.has_dictionary_page else offset


def _of_leaf(footer: pq.FileMetaData, place: int, leaf: _Leaf, where: str) -> ColumnStatistics:
    column = leaf.column
    chunks = [footer.row_group(i).column(place) for i in range(footer.num_row_groups)]
    found = [chunk.statistics for chunk in chunks]
    if any(s is None or not s.has_null_count for s in found):
        raise _rejected(
            f"{where}, column {leaf.path!r}: expected a null count in the footer, found none.",
            "write the file with statistics.",
        )
    nulls = sum(s.null_count for s in found)
    if nulls and leaf.in_each_row:
        raise _rejected(
            f"{where}, required column {leaf.path!r}: expected no nulls, found {nulls}.",
            "correct the transform, or declare the column required=False and clear `plan`.",
        )
    lower, upper = (None, None) if leaf.repeated else _bounds(found, column.type)
    return ColumnStatistics(
        id=column.id,
        size_bytes=sum(chunk.total_compressed_size for chunk in chunks),
        values=sum(chunk.num_values for chunk in chunks),
        nulls=nulls,
        lower=None if lower is None else lower.hex(),
        upper=None if upper is None else upper.hex(),
    )


def _bounds(found: Sequence[pq.Statistics], kind: str) -> tuple[bytes | None, bytes | None]:
    """Merge the bounds of row groups. A group with only nulls has none and is skipped; any other must have both."""
    filled = [s for s in found if s.num_values]
    if not filled or not all(s.has_min_max for s in filled):
        return None, None
    # Raw values, because PyArrow converts the others through datetime, which ends at the year 9999.
    lows, highs = ([_value(raw, kind) for raw in raws] for raws in _raw(filled))
    if any(isinstance(v, float) and math.isnan(v) for v in (*lows, *highs)):
        return None, None
    low, high = min(lows), max(highs)
    if kind == "string":
        return _lower_text(low), _upper_text(high)
    if (length := fixed_bytes(kind)) is not None:
        # Not truncated: a bound of a fixed type has its length (Iceberg spec, Appendix D).
        return (low, high) if length <= FIXED_BOUND_MAX else (None, None)
    if kind == "binary":
        return low[:BOUND_LENGTH], _upper_binary(high)
    if kind == "uuid":
        return low, high
    serialise = _serialiser(kind)
    return serialise(low), serialise(high)


def _raw(found: Sequence[pq.Statistics]) -> tuple[list[Any], list[Any]]:
    return [s.min_raw for s in found], [s.max_raw for s in found]


def _value(raw: Any, kind: str) -> Any:
    """Return a comparable value. Parquet stores decimals as big-endian two's complement or as integers."""
    if decimal_size(kind) and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw.encode() if isinstance(raw, str) else raw


def _serialiser(kind: str) -> Callable[[Any], bytes]:
    return decimal_bytes if decimal_size(kind) else struct.Struct(_STRUCTS[kind]).pack


def _lower_text(low: bytes) -> bytes | None:
    text = _text(low)
    return None if text is None else text[:BOUND_LENGTH].encode()


def _upper_text(high: bytes) -> bytes | None:
    """Return an upper bound of `high` with at most 16 characters, or None if there is none.

    A longer text is truncated to 16 characters without trailing U+10FFFF; its last character is raised by one code point.
    """
    text = _text(high)
    if text is None or len(text) <= BOUND_LENGTH:
        return None if text is None else high
    kept = text[:BOUND_LENGTH].rstrip("\U0010ffff")
    if not kept:
        return None
    # U+D800 to U+DFFF are not characters: U+E000 follows U+D7FF.
    after = 0xE000 if kept[-1] == "\ud7ff" else ord(kept[-1]) + 1
    return (kept[:-1] + chr(after)).encode()


def _upper_binary(high: bytes) -> bytes | None:
    if len(high) <= BOUND_LENGTH:
        return high
    kept = high[:BOUND_LENGTH].rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _rejected(message: str, hint: str) -> ReportRejected:
    return ReportRejected(message, hint=hint)
