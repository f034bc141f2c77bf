"""Converts the files that an attempt reported to entries of Iceberg manifests. No footer is read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from decimal import Decimal

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import BinaryType, DecimalType, IcebergType, StringType

from tallystick.errors import ReportRejected, listed
from tallystick.format.report import ColumnStatistics, FileReport


def check_files(add: Sequence[FileReport], drop: Collection[str], *, table: str) -> None:
    """Refuse files of another table, a file that is added twice, or a file that is both added and dropped.

    Raises ReportRejected, which names the file.
    """
    seen: set[str] = set(drop)
    for file in add:
        if file.table != table:
            raise _rejected(
                f"{file.key}: expected a file of table {table}, found table {file.table}."
            )
        if file.key in seen:
            raise _rejected(
                f"{file.key}: expected a new file of table {table}, found it already "
                f"{'dropped' if file.key in drop else 'added'}."
            )
        seen.add(file.key)


def data_file(
    file: FileReport,
    *,
    location: str,
    schema: Schema,
    spec: PartitionSpec,
    sort_order: int | None = None,
) -> DataFile:
    """Return the data file of a manifest entry. `sort_order`: the id of the order by which it is sorted.

    Raises ReportRejected if the partition tuple does not fit the spec, or if statistics name a column that the table does
    not have: readers would use them to skip files, and so miss rows.
    """
    partition = _partition(file, schema, spec)
    _check_statistics(file, schema)
    entry = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=file.rows,
        file_size_in_bytes=file.size_bytes,
        column_sizes={c.id: c.size_bytes for c in file.columns},
        value_counts={c.id: c.values for c in file.columns},
        null_value_counts={c.id: c.nulls for c in file.columns},
        nan_value_counts={},
        lower_bounds=_bounds(file.columns, "lower"),
        upper_bounds=_bounds(file.columns, "upper"),
        key_metadata=None,
        split_offsets=list(file.split_offsets) or None,
        equality_ids=None,
        sort_order_id=sort_order,
    )
    # from_args does not set it, and the snapshot's summary reads it.
    entry.spec_id = spec.spec_id
    return entry


def _bounds(columns: Sequence[ColumnStatistics], side: str) -> dict[int, bytes]:
    found = ((c.id, getattr(c, side)) for c in columns)
    return {number: bytes.fromhex(bound) for number, bound in found if bound is not None}


def _partition(file: FileReport, schema: Schema, spec: PartitionSpec) -> Record:
    """Return the partition tuple in Iceberg's types. Raises ReportRejected if it does not fit the spec."""
    kinds = [field.field_type for field in spec.partition_type(schema).fields]
    try:
        return Record(
            *(_value(value, kind) for value, kind in zip(file.partition, kinds, strict=True))
        )
    except (ValueError, ArithmeticError):
        rules = [f"{f.name}: {kind}" for f, kind in zip(spec.fields, kinds, strict=True)]
        raise _rejected(
            f"{file.key}: expected a partition of ({listed(rules)}), found ({listed(file.partition)})."
        ) from None


def _value(value: int | str | None, kind: IcebergType) -> int | str | bytes | Decimal | None:
    """Return a value of a report's partition tuple in the type of its field; raises ValueError or ArithmeticError."""
    if value is None:
        return None
    if isinstance(kind, DecimalType | BinaryType | StringType) is not isinstance(value, str):
        raise ValueError(value)
    if isinstance(value, str) and isinstance(kind, BinaryType):
        return bytes.fromhex(value)
    if not isinstance(kind, DecimalType):
        return value
    number = Decimal(value)
    _, digits, exponent = number.as_tuple()
    if exponent != -kind.scale or len(digits) > kind.precision:
        raise ValueError(value)
    return number


def _check_statistics(file: FileReport, schema: Schema) -> None:
    unknown_ids = sorted({c.id for c in file.columns} - set(schema.field_ids))
    if unknown_ids:
        raise _rejected(
            f"{file.key}: expected column ids of {listed(schema.field_ids)}, found {unknown_ids[0]}."
        )


def _rejected(message: str) -> ReportRejected:
    return ReportRejected(
        message, hint="clear task `stage` to stage the interval again. Nothing was changed."
    )
