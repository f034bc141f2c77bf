"""Columns as a user declares them, and the columns that tallystick adds: lineage, and the columns of dead letters."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tallystick.errors import InvalidPipeline
from tallystick.format.codec import NOT_STORED, StoredValue
from tallystick.format.columns import check_column_name, check_fields
from tallystick.format.types import (
    KEY,
    LIST,
    MAP,
    NESTED,
    PRIMITIVES,
    STRUCT,
    TypeField,
    parse_type,
    type_text,
)
from tallystick.pipeline.paths import Path, escaped, parse_path, path_text
from tallystick.pipeline.time_formats import rule_problem

T = TypeVar("T")
_TIMES = ("date", "timestamp", "timestamptz")
JSON_TEXT = "json"
"""The parse rule of a string column that keeps a value of any kind as JSON text."""
# The names of the types in SQL, Spark or JSON schema.
_OTHER_NAMES = {
    **dict.fromkeys(("bigint", "int64"), "long"),
    **dict.fromkeys(("integer", "int32", "smallint", "tinyint"), "int"),
    **dict.fromkeys(("str", "text", "varchar"), "string"),
    **dict.fromkeys(("bytes", "bytea", "varbinary"), "binary"),
    **{"bool": "boolean", "real": "float", "float64": "double", "datetime": "timestamp"},
    **{
        "array": "list<type>",
        "record": "struct<name: type, ...>",
        "row": "struct<name: type, ...>",
    },
    **dict.fromkeys(("numeric", "number"), "decimal(precision,scale)"),
}


def refuse(message: str, hint: str) -> InvalidPipeline:
    """Build the error for a declaration that is not allowed."""
    return InvalidPipeline(message, hint=hint)


def _check_renames(columns: Sequence[Column], what: str) -> None:
    """Refuse two columns, or two fields of one struct, that are one column of the lake."""
    names = {c.name.lower() for c in columns}
    olds = [c.renamed_from.lower() for c in columns if c.renamed_from is not None]
    if both := sorted({old for old in olds if old in names or olds.count(old) > 1}):
        raise refuse(
            f"{what}: expected one column of the names {both[0]!r} and renamed_from={both[0]!r}, found two.",
            "rename a column first, without another change; after a run has planned with that, remove renamed_from and "
            "use the old name again.",
        )


def several(values: Sequence[T], what: str) -> tuple[T, ...]:
    """Return the values as a tuple; raises InvalidPipeline if `values` is a string."""
    # A string is also a sequence: of its characters.
    if isinstance(values, str):
        raise refuse(
            f"{what}: expected a list, found the string {values!r}.", f"write [{values!r}]."
        )
    return tuple(values)


@dataclass(frozen=True, slots=True)
class Column(StoredValue):
    r"""One column: its name, its Iceberg type, if it is `required`, and the field of the records that it is read from.

    `type` is a primitive type (`long`, `decimal(9,2)`, `fixed[16]`), or `list<string>`, `map<string, long>`,
    `struct<os: string, version: optional int>`, at any depth. What a type contains is required unless it is `optional`.
    `fields` are the parts of a struct as columns, if they need rules of their own: `Column("device", "struct",
    fields=[...])`, also inside of a list or a map, `Column("items", "list<struct>", fields=[...])`.
    `source` is the place of the value in the record (default: the column's name): a field, or a path into nested values,
    `device.os`, `items[0].sku`. A dot or bracket in a name is escaped with a backslash, `r"http\.method"`. In `fields`
    it begins at their struct.
    `parse` is for dates and timestamps: `iso8601` (the default), `epoch_ms`, `epoch_s`, `epoch_us`, or a strptime format;
    for dates also `epoch_days`.
    A timestamptz without an offset is UTC only if the format ends in `Z`. For a string, `json` keeps a value of any kind
    as JSON text. A rule of a list, map or struct applies to all parts of it that it fits and that have none.
    Raises InvalidPipeline at once if no text could match the rule (`time_formats`).
    `renamed_from` is the column's name in the lake until now: it keeps its id, and readers find the older rows under the
    new name. A column that is decoded and renamed must have `source`, so that a rename never changes which field is read.
    """

    name: str
    type: str
    required: bool = True
    source: str | None = None
    parse: str | None = None
    renamed_from: str | None = field(default=None, metadata=NOT_STORED)
    fields: Sequence[Column] = ()

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
        object.__setattr__(self, "fields", self._given_fields())
        try:
            kind, fields = _tree(self)
            object.__setattr__(self, "type", kind)
            object.__setattr__(self, "fields", fields)
            check_fields(self)
        except ValueError as error:
            raise refuse(f"column {self.name!r}: {error}.", _instead(self.type)) from error
        self._check_parts()
        _check_renames(self.fields, f"column {self.name!r}")
        try:
            parse_path(self.name if self.source is None else self.source)
        except ValueError as error:
            raise refuse(
                f"column {self.name!r}: source {self.source!r}: {error}.",
                'write a path such as "device.os" or "items[0].sku". If a dot or bracket is part of a name, escape it: '
                f'source=r"{escaped(self.source or self.name)}".',
            ) from error
        self._check_rule()

    def _given_fields(self) -> tuple[Column, ...]:
        fields = several(self.fields, f"column {self.name!r}: fields")
        if others := [f for f in fields if not isinstance(f, Column)]:
            raise refuse(
                f"column {self.name!r}: fields: expected a Column, found {others[0]!r}.",
                "write fields=[Column(name, type)].",
            )
        return fields

    def _check_parts(self) -> None:
        """Refuse a source or another name of an element, a key or a value: it has no field of its own."""
        if self.type not in (LIST, MAP):
            return
        for part in self.fields:
            if part.source is not None or part.renamed_from is not None:
                raise refuse(
                    f"column {self.name!r}: expected no source and no renamed_from of the {part.name} of a {self.type}.",
                    "remove it.",
                )

    def _check_rule(self) -> None:
        """Check the parse rule, and pass that of a nested type on to the parts that it applies to."""
        if self.parse is None:
            return
        if self.type == "string" and self.parse == JSON_TEXT:
            return
        if self.type in NESTED and _takes(self, self.parse):
            fields = tuple(_with_rule(f, self.parse, of=self.type) for f in self.fields)
            object.__setattr__(self, "fields", fields)
            object.__setattr__(self, "parse", None)
            return
        if self.type not in _TIMES:
            raise refuse(
                f"column {self.name!r}: expected no parse rule for type {self.text}, found {self.parse!r}.",
                "remove parse: only date, timestamp and timestamptz accept it, and string accepts 'json'.",
            )
        if problem := rule_problem(self.parse, self.type):
            raise refuse(
                f"column {self.name!r} of type {self.type}: the parse rule {self.parse!r} {problem}.",
                "use iso8601, epoch_s, epoch_ms, epoch_us, for a date epoch_days, or a strptime format with a year; for "
                "a timestamptz also with %z or a final Z.",
            )

    @property
    def text(self) -> str:
        """The column's whole type as text."""
        return type_text(self)

    @property
    def path(self) -> Path:
        """The place in the record that the column is read from: names and positions."""
        return (self.name,) if self.source is None else parse_path(self.source)

    @property
    def field(self) -> str:
        """The place in the record that the column is read from, as a dead letter names it."""
        return path_text(self.path)


def _tree(column: Column) -> tuple[str, tuple[Column, ...]]:
    """Return a column's type and parts, of which its text and its `fields` each give some; raises ValueError."""
    given = tuple(column.fields)
    if given and column.type in NESTED:
        return column.type, given
    found = parse_type(column.type)
    fields, used = _filled(found, given)
    if given and used != 1:
        raise ValueError(
            f"expected a type with one struct without fields for fields=[...], found {column.type!r}"
        )
    return found.type, fields


def _filled(found: TypeField, given: tuple[Column, ...]) -> tuple[tuple[Column, ...], int]:
    """Return the parts of a type as columns, with `given` as those of a struct that has none, and how many these are."""
    if found.type == STRUCT and not found.fields:
        return given, 1
    parts: list[Column] = []
    total = 0
    for part in found.fields:
        fields, used = _filled(part, given)
        total += used
        parts.append(Column(part.name, part.type, part.required, fields=fields))
    return tuple(parts), total


def keeps_json_text(column: Column) -> bool:
    """Return True if a column, or a part of it, keeps values as JSON text."""
    return column.parse == JSON_TEXT or any(map(keeps_json_text, column.fields))


def _takes(column: Column, rule: str) -> bool:
    """Return True if a parse rule applies to a column or to a part of it."""
    if column.type in NESTED:
        return any(_takes(part, rule) for part in column.fields)
    return column.type == "string" if rule == JSON_TEXT else column.type in _TIMES


def _with_rule(column: Column, rule: str, *, of: str) -> Column:
    """Return a part of a column of type `of` with a rule, if the rule applies to it and it has none."""
    is_key = (of, column.name) == (MAP, KEY)
    if column.parse is not None or not _takes(column, rule) or (is_key and rule == JSON_TEXT):
        return column
    return replace(column, parse=rule)


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
    words = re.findall(r"[A-Za-z_0-9]+", kind)
    if STRUCT in words:
        return "write struct<name: type, ...>; or struct, with its fields as fields=[Column(name, type), ...]."
    known = (*PRIMITIVES, *NESTED, "decimal", "fixed", "optional", "required")
    for word in words:
        lower = word.lower()
        near = _OTHER_NAMES.get(lower) or next(
            iter(difflib.get_close_matches(lower, known, 1)), None
        )
        if near and near != word:
            return f"did you mean {near!r}?"
    return "use one of these types."


def decoded(columns: Iterable[Column], what: str) -> tuple[Column, ...]:
    """Return the columns of a format as `unique` does; a renamed one without `source` is refused, too."""
    kept = unique(columns, what)
    renamed = [c for c in _with_parts(kept) if c.renamed_from is not None]
    if unclear := [c for c in renamed if c.source is None]:
        old, new = unclear[0].renamed_from, unclear[0].name
        raise refuse(
            f"{what}: column {new!r} is renamed from {old!r}: expected source= the field of the records, found none.",
            f"add source={old!r} if the records still have the field {old!r}; or source={new!r}. Keep it when you remove "
            "renamed_from.",
        )
    return kept


def _with_parts(columns: Iterable[Column]) -> Iterator[Column]:
    for column in columns:
        yield column
        yield from _with_parts(column.fields)


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
    _check_renames(kept, what)
    return kept
