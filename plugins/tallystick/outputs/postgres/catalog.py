"""Reads the structure of a table from PostgreSQL's catalog, and checks if rows of the lake fit into the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from tallystick.format.types import NESTED
from tallystick.outputs.postgres.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

# The modifier of numeric contains precision and scale, the scale as 11 bits with a sign (numeric.c, make_numeric_typmod).
_HEADER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseColumn:
    """A column in the database. `type` is PostgreSQL's spelling; `kind` and `modifier` are those of its catalog."""

    name: str
    type: str
    kind: str
    modifier: int
    required: bool
    has_default: bool
    computed: bool

    @property
    def length_max(self) -> int | None:
        """The maximum number of characters; None if there is no limit."""
        return self.modifier - _HEADER if self.kind == "varchar" and self.modifier >= 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseTable:
    """A table: its columns by name, its unique constraints, and other rules that may refuse a row."""

    columns: dict[str, DatabaseColumn]
    unique: frozenset[frozenset[str]]
    kind: str
    logged: bool
    row_security: bool
    rights_missing: tuple[str, ...]
    more_rules: bool


def read_table(session: Session, schema: str, name: str) -> DatabaseTable | None:
    """Return the current table; None if there is no table of that name."""
    quoted = sql.Identifier(schema, name).as_string(None)
    found = session.one("read the table", _TABLE, (quoted,))
    if found is None:
        return None
    oid, kind, persistence, row_security, missing, more_rules = found
    columns = {
        column: DatabaseColumn(
            name=column,
            type=type_,
            kind=type_kind,
            modifier=modifier,
            required=required,
            has_default=has_default,
            computed=computed,
        )
        for column, type_, type_kind, modifier, required, has_default, computed in session.run(
            "read the columns", _COLUMNS, (oid,)
        )
    }
    unique = {frozenset(one[0]) for one in session.run("read the keys", _UNIQUE, (oid,))}
    return DatabaseTable(
        columns=columns,
        unique=frozenset(unique),
        kind=kind,
        logged=persistence == "p",
        row_security=row_security,
        rights_missing=tuple(missing),
        # If there is a unique index other than the key's, it is an additional rule.
        more_rules=more_rules or len(unique) > 1,
    )


_TABLE = sql.SQL(
    """
    SELECT c.oid, c.relkind::text, c.relpersistence::text, row_security_active(c.oid),
        ARRAY (SELECT p FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p WHERE NOT CASE p
            WHEN 'DELETE' THEN has_table_privilege(c.oid, p) ELSE has_any_column_privilege(c.oid, p) END),
        c.relkind = 'p' OR c.relhastriggers OR c.relhasrules OR EXISTS (
            SELECT FROM pg_constraint k
            WHERE (k.conrelid = c.oid AND k.contype IN ('c', 'f', 'x', 't')) OR k.confrelid = c.oid
        ) OR EXISTS (
            SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND
                (i.indpred IS NOT NULL OR i.indexprs IS NOT NULL OR NOT i.indimmediate)
        )
    FROM pg_class c WHERE c.oid = to_regclass(%s)
    """
)
_COLUMNS = sql.SQL(
    """
    SELECT a.attname::text, format_type(a.atttypid, a.atttypmod),
        CASE WHEN n.nspname = 'pg_catalog' AND t.typtype = 'b' THEN t.typname::text ELSE '' END,
        a.atttypmod, a.attnotnull, a.atthasdef OR a.attidentity <> '',
        a.attgenerated <> '' OR a.attidentity = 'a'
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid JOIN pg_namespace n ON n.oid = t.typnamespace
    WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
    """
)
# The indexes that ON CONFLICT can use: not partial, valid, checked immediately, over plain columns.
_UNIQUE = sql.SQL(
    """
    SELECT array_agg(a.attname::text) FROM pg_index i
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
    WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate
        AND i.indpred IS NULL AND i.indexprs IS NULL
    GROUP BY i.indexrelid
    """
)


# ---------------------------------------------------------------- types

# For each type of the lake, the types that hold every value of it unchanged. decimal and texts have additional rules.
_FITS = {
    "boolean": {"bool"},
    "int": {"int4", "int8"},
    "long": {"int8"},
    "float": {"float4", "float8"},
    "double": {"float8"},
    "date": {"date"},
    "binary": {"bytea"},
    "string": {"text", "varchar", "uuid", "jsonb"},
    "uuid": {"uuid"},
    "fixed": {"bytea"},
    **{kind: {"jsonb"} for kind in NESTED},
}
_WHOLE_DIGITS = {"int": 10, "long": 19}
MICROSECONDS = 6


def fits(lake: str, column: DatabaseColumn) -> bool:
    """Return True if the column holds every value of a type of the lake, without rounding, truncation or overflow."""
    if column.kind in _FITS.get(lake, ()):
        return True
    if column.kind == lake and lake in ("time", "timestamp", "timestamptz"):
        return column.modifier < 0 or column.modifier >= MICROSECONDS
    if column.kind != "numeric":
        return False
    if lake in _WHOLE_DIGITS:
        whole, scale = _WHOLE_DIGITS[lake], 0
    elif lake.startswith("decimal("):
        precision, scale = (int(n) for n in lake[len("decimal(") : -1].split(","))
        whole = precision - scale
    else:
        return False
    if column.modifier < 0:
        return True
    packed = column.modifier - _HEADER
    column_scale = ((packed & 0x7FF) ^ 1024) - 1024
    return column_scale >= scale and (packed >> 16 & 0xFFFF) - column_scale >= whole


def lake_type(arrow: pa.DataType) -> str:
    """Return a column's type as a pipeline declares it."""
    import pyarrow.types as of  # pyarrow is loaded in the task, never when a DAG is parsed

    if of.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if of.is_timestamp(arrow):
        return "timestamp" if arrow.tz is None else "timestamptz"
    for name, holds in (
        ("boolean", of.is_boolean),
        ("long", of.is_int64),
        ("int", of.is_int32),
        ("float", of.is_float32),
        ("double", of.is_float64),
        ("date", of.is_date32),
        ("string", lambda t: of.is_string(t) or of.is_large_string(t)),
        ("binary", lambda t: of.is_binary(t) or of.is_large_binary(t)),
        ("fixed", of.is_fixed_size_binary),
        ("time", of.is_time),
        ("uuid", lambda t: getattr(t, "extension_name", "") == "arrow.uuid"),
        ("struct", of.is_struct),
        ("map", of.is_map),
        ("list", lambda t: of.is_list(t) or of.is_large_list(t)),
    ):
        if holds(arrow):
            return name
    return str(arrow)


def key_text(columns: Sequence[str], values: Sequence[Any]) -> str:
    """Return a key in the form that messages show."""
    return ", ".join(f"{c}={v!r}" for c, v in zip(columns, values, strict=True))
