"""The types that Spark has for a table's columns: those of Arrow, but a UUID is a text, as in Iceberg's own reader."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tallystick.tables.schema import is_list


def spark_schema(schema: pa.Schema) -> StructType:
    """Return Spark's schema of an Arrow schema."""
    found: StructType = from_arrow_schema(pa.schema([_field(f) for f in schema]))
    return found


def _field(field: pa.Field) -> pa.Field:
    return field.with_type(_type(field.type))


def _type(kind: pa.DataType) -> pa.DataType:
    if kind == pa.uuid():
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([_field(kind.field(i)) for i in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_field(kind.key_field), _field(kind.item_field))
    return pa.list_(_field(kind.value_field)) if is_list(kind) else kind
