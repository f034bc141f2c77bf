"""Formats of a topic's values, as a user declares them: the decoder and the columns.

A decoder is found by its format's name (tallystick.engine.decode). JSON, text and raw bytes are part of tallystick; any
other is a package that registers its decoder under that name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tallystick.format.canonical import dumps
from tallystick.format.codec import StoredValue
from tallystick.pipeline.columns import Column, decoded, refuse

JSON, TEXT, RAW = "json", "text", "raw"
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
    """

    columns: Sequence[Column]
    tombstones: Literal["dead", "keep"] = "dead"
    other_fields: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", decoded(self.columns, "decode"))
        _check_tombstones(self.tombstones)
        if self.tombstones == "keep" and any(c.required for c in self.columns):
            raise refuse(
                "tombstones='keep': expected only columns with required=False, found a required one.",
                "declare all columns required=False, or use 'dead'.",
            )

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
        return Format(JSON, self.columns, options)

    @classmethod
    def of(cls, declared: Format) -> Json:
        """Return a `json` format with its options checked; raises InvalidPipeline."""
        options = dict(declared.options)
        tombstones = options.pop("tombstones", "dead")
        other_fields = options.pop("other_fields", None)
        if options:
            raise refuse(
                f"format json: expected no other options, found {sorted(options)[0]!r}.",
                "remove it, or use Json(...).",
            )
        return cls(declared.columns, tombstones, other_fields)


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


def _whole(name: str, kind: str, tombstones: str) -> Column:
    _check_tombstones(tombstones)
    return Column(name, kind, required=tombstones == "dead")


def _check_tombstones(tombstones: str) -> None:
    if tombstones not in ("dead", "keep"):
        raise refuse(
            f"tombstones: expected 'dead' or 'keep', found {tombstones!r}.",
            "use one of the two.",
        )
