"""Formats of a topic's values, as a user declares them: the decoder and the columns.

A decoder is found by its format's name (tallystick.engine.decode). JSON, text and raw bytes are part of tallystick; any
other is a package that registers its decoder under that name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tallystick.errors import listed
from tallystick.format.canonical import dumps
from tallystick.format.codec import StoredValue
from tallystick.pipeline.columns import Column, decoded, refuse, several
from tallystick.pipeline.registry_options import Misfits, checked_subjects, stored_options

JSON, TEXT, RAW, CSV = "json", "text", "raw", "csv"
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")


@dataclass(frozen=True, slots=True)
class Format(StoredValue):
    """A format, by the name of its decoder. `options` are JSON values without floats; the decoder gets them unchanged.

    A plan contains the options, so they must contain no secret.
    """

    name: str
    columns: Sequence[Column]
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise refuse(
                f"format name {self.name!r} is not allowed.",
                "use 1 to 63 of a-z, 0-9, _ and -, beginning with a letter.",
            )
        object.__setattr__(self, "columns", decoded(self.columns, f"format {self.name}"))
        object.__setattr__(self, "options", dict(self.options))
        try:
            dumps(self.options)
        except TypeError as error:
            raise refuse(
                f"format {self.name}: options: {error}.",
                "use strings, whole numbers, true, false, null, and lists and objects of them.",
            ) from error


@dataclass(frozen=True, slots=True)
class Json:
    """The JSON format: values are JSON objects (RFC 8259, UTF-8). Values that do not fit the columns are dead letters.

    `tombstones`: a null value is a dead letter (`dead`), or a row whose columns are all null (`keep`; then every column
    must be optional). `other_fields`: the name of a string column that gets the top-level fields that no other column
    reads, as the text of a JSON object; None: they are ignored.
    `registry`: the values are in Confluent's wire format, as the serializer for JSON Schema writes them, and the
    connection with this name has their schemas. No value is validated against its schema: the columns decide. A plan
    contains the schemas of the `subjects` (default: `<topic>-value`, or `<topic>-key` for keys); a record with the id of
    any other schema is a dead letter. `misfits`: if a subject has a schema that is no JSON Schema, its records are dead
    letters (`dead`), or nothing is planned (`stop`).
    """

    columns: Sequence[Column]
    tombstones: Literal["dead", "keep"] = "dead"
    other_fields: str | None = None
    registry: str | None = None
    subjects: Sequence[str] = ()
    misfits: Misfits = "dead"

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "columns", decoded(self.columns, "decode"))
        subjects = checked_subjects("format json", self.registry, self.subjects, self.misfits)
        set_(self, "subjects", subjects)
        check_tombstones(self.tombstones)
        check_optional(self.columns, self.tombstones)
        if self.other_fields is not None and not any(
            (c.name, c.type, c.source, c.parse) == (self.other_fields, "string", None, None)
            for c in self.columns
        ):
            raise refuse(
                f"other_fields: expected the name of a string column without source and parse, found "
                f"{self.other_fields!r}.",
                f'add Column("{self.other_fields}", "string") to the columns.',
            )

    @property
    def format(self) -> Format:
        """The same format in the form that a plan contains."""
        options: dict[str, Any] = {"tombstones": self.tombstones}
        if self.other_fields is not None:
            options["other_fields"] = self.other_fields
        options |= stored_options(self.registry, self.subjects, self.misfits)
        return Format(JSON, self.columns, options)

    @classmethod
    def of(cls, declared: Format) -> Json:
        """Return a `json` format with its options checked; raises InvalidPipeline."""
        known = {"tombstones", "other_fields", "registry", "subjects", "misfits"}
        if unknown := sorted(declared.options.keys() - known):
            raise refuse(
                f"format json: expected no other options, found {unknown[0]!r}.",
                "remove it, or use Json(...).",
            )
        return cls(declared.columns, **declared.options)


@dataclass(frozen=True, slots=True)
class Text:
    """Values as texts in UTF-8, each whole in one string column. A value that is not UTF-8 is a dead letter.

    `tombstones`: a null value is a dead letter (`dead`), or null in the column (`keep`).
    """

    column: str = "value"
    tombstones: Literal["dead", "keep"] = "dead"

    def __post_init__(self) -> None:
        _ = self.format  # its column is checked here

    @property
    def format(self) -> Format:
        """The same format in the form that a plan contains."""
        return Format(TEXT, [_whole(self.column, "string", self.tombstones)])


@dataclass(frozen=True, slots=True)
class Raw:
    """Values as bytes of any kind, each whole in one binary column.

    `tombstones`: a null value is a dead letter (`dead`), or null in the column (`keep`).
    """

    column: str = "value"
    tombstones: Literal["dead", "keep"] = "dead"

    def __post_init__(self) -> None:
        _ = self.format  # its column is checked here

    @property
    def format(self) -> Format:
        """The same format in the form that a plan contains."""
        return Format(RAW, [_whole(self.column, "binary", self.tombstones)])


@dataclass(frozen=True, slots=True)
class Csv:
    """Lines of separated fields (CSV by RFC 4180, TSV), one line per record. Lines that do not fit are dead letters.

    `columns`: by default those of the pipeline's first table. `fields`: the names of all fields in their order; a column
    reads the field of its name or `source`. By default the fields are the columns in their order.
    `separator`: one ASCII character, such as `";"` or `"\\t"`. `quote`: the quote character, which is written twice
    inside of quotes; None: quotes have no meaning. `null`: the text that is null unless it is in quotes; None: no text.
    Numbers have the syntax of JSON, booleans are `true` and `false`, binary values are base64, times are as in JSON.
    `tombstones`: a null value is a dead letter (`dead`), or a row whose columns are all null (`keep`).
    """

    columns: Sequence[Column] | None = None
    fields: Sequence[str] | None = None
    separator: str = ","
    quote: str | None = '"'
    null: str | None = ""
    tombstones: Literal["dead", "keep"] = "dead"

    def __post_init__(self) -> None:
        if self.columns is not None:
            object.__setattr__(self, "columns", decoded(self.columns, "format csv"))
        if self.fields is not None:
            names = several(self.fields, "format csv: fields")
            object.__setattr__(self, "fields", names)
            if not names or len(set(names)) != len(names):
                raise refuse(
                    f"format csv: fields: expected different names, found {listed(names)}.",
                    "name each field once, in their order.",
                )
        for what, character in (("separator", self.separator), ("quote", self.quote)):
            if character is not None and not _is_mark(character):
                raise refuse(
                    f"format csv: {what}: expected one ASCII character, found {character!r}.",
                    'use one character, such as ";".',
                )
        if self.separator == self.quote:
            raise refuse(
                f"format csv: expected a separator that is not the quote, found {self.quote!r} for both.",
                "use another separator or quote=None.",
            )
        check_tombstones(self.tombstones)
        check_optional(self.columns or (), self.tombstones)

    def planned(self, columns: Sequence[Column]) -> Format:
        """Return the format in the form that a plan contains; `columns` are those if it declares none."""
        options: dict[str, Any] = {
            "separator": self.separator,
            "quote": self.quote,
            "null": self.null,
            "tombstones": self.tombstones,
        }
        if self.fields is not None:
            options["fields"] = list(self.fields)
        found = tuple(self.columns or columns)
        check_optional(found, self.tombstones)
        self._check_fields(found)
        return Format(CSV, found, options)

    def _check_fields(self, columns: Sequence[Column]) -> None:
        """Refuse a column that reads no declared field; raises InvalidPipeline."""
        names = self.fields or [column.name for column in columns]
        for column in columns:
            if column.path not in [(name,) for name in names]:
                raise refuse(
                    f"format csv: column {column.name!r}: expected one of the fields {listed(names)}, found "
                    f"{column.field!r}.",
                    "name all fields in their order, fields=[...], and the column's field by its name or source. A field "
                    "is one primitive value.",
                )

    @classmethod
    def of(cls, declared: Format) -> Csv:
        """Return a `csv` format with its options checked; raises InvalidPipeline."""
        known = {"fields", "separator", "quote", "null", "tombstones"}
        if unknown := sorted(declared.options.keys() - known):
            raise refuse(
                f"format csv: expected no other options, found {unknown[0]!r}.",
                "remove it, or use Csv(...).",
            )
        return cls(declared.columns, **declared.options)


def _is_mark(character: Any) -> bool:
    return (
        isinstance(character, str)
        and len(character) == 1
        and character.isascii()
        and (character not in "\r\n")
    )


def check_optional(columns: Sequence[Column], tombstones: str) -> None:
    """Refuse required columns if tombstones are rows of nulls; raises InvalidPipeline."""
    if tombstones == "keep" and any(c.required for c in columns):
        raise refuse(
            "tombstones='keep': expected only columns with required=False, found a required one.",
            "declare all columns required=False, or use 'dead'.",
        )


def _whole(name: str, kind: str, tombstones: str) -> Column:
    check_tombstones(tombstones)
    return Column(name, kind, required=tombstones == "dead")


def check_tombstones(tombstones: str) -> None:
    """Refuse a value of `tombstones` that there is not; raises InvalidPipeline."""
    if tombstones not in ("dead", "keep"):
        raise refuse(
            f"tombstones: expected 'dead' or 'keep', found {tombstones!r}.",
            "use one of the two.",
        )
