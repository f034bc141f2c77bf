"""Columns as a user declares them, and the columns that tallystick adds: lineage, and the columns of dead letters."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tallystick.errors import InvalidPipeline
from tallystick.format.codec import NOT_STORED, StoredValue
from tallystick.format.columns import PRIMITIVES, check_column_name, check_type
from tallystick.pipeline.time_formats import rule_problem

T = TypeVar("T")
# The name of a field; a dot or backslash in the name is escaped with a backslash.
_SOURCE = re.compile(r"(?:[^.\\]|\\[.\\])*")
# The names of the types in SQL, Spark or JSON schema.
_OTHER_NAMES = {
    **dict.fromkeys(("bigint", "int64"), "long"),
    **dict.fromkeys(("integer", "int32", "smallint", "tinyint"), "int"),
    **dict.fromkeys(("str", "text", "varchar"), "string"),
    **dict.fromkeys(("bytes", "bytea", "varbinary"), "binary"),
    **{"bool": "boolean", "real": "float", "float64": "double", "datetime": "timestamp"},
    **dict.fromkeys(("numeric", "number"), "decimal(precision,scale)"),
}


def refuse(message: str, hint: str) -> InvalidPipeline:
    """Build the error for a declaration that is not allowed."""
    return InvalidPipeline(message, hint=hint)


@dataclass(frozen=True, slots=True)
class Column(StoredValue):
    r"""One column: its name, its Iceberg type string, if it is `required`, and its JSON field and parse rule.

    `source` is the JSON field (default: the column's name). It must be at the top level of the record: nested fields are
    not read. If a field's name contains a dot, escape it with a backslash, `r"http\.method"`. `parse` is for dates and
    timestamps: `iso8601` (the default), `epoch_ms`, `epoch_s`, `epoch_us`, or a strptime format. A timestamptz without an
    offset is UTC only if the format ends in `Z`. Raises InvalidPipeline at once if no text could match the rule
    (`time_formats`).
    `renamed_from` is the column's name in the lake until now: it keeps its id, and readers find the older rows under the
    new name. A column that is decoded and renamed must have `source`, so that a rename never changes which field is read.
    """

    name: str
    type: str
    required: bool = True
    source: str | None = None
    parse: str | None = None
    renamed_from: str | None = field(default=None, metadata=NOT_STORED)

    def __post_init__(self) -> None:
        try:
            check_column_name(self.name)
        except ValueError as error:
            raise refuse(f"{error}.", "rename the Column in the pipeline's file.") from error
        if self.renamed_from == self.name:
            raise refuse(
                f"column {self.name!r}: expected renamed_from another name, found its own.",
                "remove renamed_from.",
            )
        try:
            object.__setattr__(self, "type", check_type(self.type))
        except ValueError as error:
            raise refuse(f"column {self.name!r}: {error}.", _instead(self.type)) from error
        if self.source is not None and not _SOURCE.fullmatch(self.source):
            with_backslash = re.sub(r"\\?([.\\])", r"\\\1", self.source)
            raise refuse(
                f"column {self.name!r}: expected source= the name of a top-level field, found the nested path "
                f"{self.source!r}; nested fields are not supported yet.",
                "change the producer to write the value at the top level of the record. If the dot is part of the "
                "field's name, "
                f'write source=r"{with_backslash}".',
            )
        if self.parse is not None and self.type not in {"date", "timestamp", "timestamptz"}:
            raise refuse(
                f"column {self.name!r}: expected no parse rule for type {self.type}, found {self.parse!r}.",
                "remove parse: only date, timestamp and timestamptz accept it.",
            )
        if self.parse is not None and (problem := rule_problem(self.parse, self.type)):
            raise refuse(
                f"column {self.name!r} of type {self.type}: the parse rule {self.parse!r} {problem}.",
                "use iso8601, epoch_s, epoch_ms, epoch_us or a strptime format with a year; for a timestamptz also with "
                "%z or a final Z.",
            )

    @property
    def field(self) -> str:
        """The JSON field that the column is read from."""
        return self.name if self.source is None else re.sub(r"\\(.)", r"\1", self.source)


LINEAGE = (
    Column("_topic", "string"),
    Column("_kafka_partition", "int"),
    Column("_offset", "long"),
    Column("_timestamp", "timestamptz"),
)
"""The lineage columns: each row of each record-level table has them."""

DEAD_LETTER_COLUMNS = (
    *LINEAGE,
    Column("key", "binary", required=False),
    Column("value", "binary", required=False),
    # A JSON list of [name, base64 or null]: header names may repeat, values are bytes.
    Column("headers", "string", required=False),
    # The reason in parts, to group by, and as one text. `field` is null if the reason is about the whole value.
    Column("kind", "string"),
    Column("field", "string", required=False),
    Column("detail", "string"),
    Column("reason", "string"),
)


def _instead(kind: str) -> str:
    """Build the hint for an unknown type; it names the most similar known type."""
    near = _OTHER_NAMES.get(kind.lower()) or next(
        iter(difflib.get_close_matches(kind.lower(), PRIMITIVES, 1)), None
    )
    if kind.lower().startswith(("list", "struct", "map", "array")):
        return "declare columns of the types above: nested values are not supported yet."
    return f"did you mean {near!r}?" if near else "use one of these types."


def several(values: Sequence[T], what: str) -> tuple[T, ...]:
    """Return the values as a tuple; raises InvalidPipeline if `values` is a string."""
    # A string is also a sequence: of its characters.
    if isinstance(values, str):
        raise refuse(
            f"{what}: expected a list, found the string {values!r}.", f"write [{values!r}]."
        )
    return tuple(values)


def decoded(columns: Iterable[Column], what: str) -> tuple[Column, ...]:
    """Return the columns of a format as `unique` does; a renamed one without `source` is refused, too."""
    kept = unique(columns, what)
    if unclear := [c for c in kept if c.renamed_from is not None and c.source is None]:
        old, new = unclear[0].renamed_from, unclear[0].name
        raise refuse(
            f"{what}: column {new!r} is renamed from {old!r}: expected source= the field of the records, found none.",
            f"add source={old!r} if the records still have the field {old!r}; or source={new!r}. Keep it when you remove "
            "renamed_from.",
        )
    return kept


def unique(columns: Iterable[Column], what: str) -> tuple[Column, ...]:
    """Return the columns as a tuple; raises InvalidPipeline if there are none, or if a name is used twice or reserved."""
    kept = tuple(columns)
    if others := [c for c in kept if not isinstance(c, Column)]:
        raise refuse(
            f"{what}: expected a Column, found {others[0]!r}.", "write Column(name, type)."
        )
    names = [c.name.lower() for c in kept]
    twice = sorted({n for n in names if names.count(n) > 1})
    if not kept:
        raise refuse(f"{what}: expected at least one column, found none.", "declare its columns.")
    if twice:
        raise refuse(
            f"{what}: expected unique column names, found {twice[0]!r} twice.",
            "remove or rename one of the columns.",
        )
    reserved = sorted(c.name for c in kept if c.name.startswith("_"))
    if reserved:
        raise refuse(
            f"{what}: expected no column name with a leading underscore, found {reserved[0]!r}.",
            "choose another name: such names are reserved for tallystick.",
        )
    olds = [c.renamed_from.lower() for c in kept if c.renamed_from is not None]
    if both := sorted({old for old in olds if old in names or olds.count(old) > 1}):
        raise refuse(
            f"{what}: expected one column of the names {both[0]!r} and renamed_from={both[0]!r}, found two.",
            "rename a column first, without another change; after a run has planned with that, remove renamed_from and "
            "use the old name again.",
        )
    return kept
