"""Formats whose values have a schema: Avro and Protobuf, with a registry or with the schema of a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from tallystick.pipeline.columns import Column, decoded, refuse
from tallystick.pipeline.formats import Format, check_optional, check_tombstones
from tallystick.pipeline.registry_options import Misfits, checked_subjects

AVRO, PROTOBUF = "avro", "protobuf"
FOLLOW = "follow"
"""The value of `schema` by which a topic has the columns of its schemas in the registry."""
Tombstones = Literal["dead", "keep"]


@dataclass(frozen=True, slots=True)
class _SchemaFormat:
    """What Avro and Protobuf have in common."""

    NAME: ClassVar[str]
    columns: Sequence[Column] | None = None
    schema: str | Path | None = None
    registry: str | None = None
    subjects: Sequence[str] = ()
    misfits: Misfits = "dead"
    tombstones: Tombstones = "dead"

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        what = f"format {self.NAME}"
        if self.columns is not None:
            set_(self, "columns", decoded(self.columns, what))
        if self.follows:
            self._check_following(what)
        elif (self.schema is None) == (self.registry is None):
            found = "neither" if self.schema is None else "both"
            raise refuse(
                f"{what}: expected either schema or registry, found {found}.",
                'use registry="default" for values in the wire format of a schema registry, or schema=Path("...") for '
                "values without a schema id.",
            )
        if isinstance(self.schema, Path):
            set_(self, "schema", _text_of(self.schema, what))
        set_(self, "subjects", checked_subjects(what, self.registry, self.subjects, self.misfits))
        check_tombstones(self.tombstones)
        check_optional(self.columns or (), self.tombstones)

    @property
    def follows(self) -> bool:
        """True if the columns are those of the schemas in the registry."""
        return self.schema == FOLLOW

    def _check_following(self, what: str) -> None:
        if self.registry is None or self.columns is not None:
            found = "none" if self.registry is None else "columns, too"
            raise refuse(
                f"{what}: expected registry=... and no columns together with schema='follow', found {found}.",
                'write registry="default", schema="follow"; or declare the columns and remove schema.',
            )

    def planned(self, columns: Sequence[Column]) -> Format:
        """Return the format in the form that a plan contains; `columns` are those if it declares none."""
        found = tuple(self.columns or columns)
        if self.follows and self.tombstones == "keep":
            found = tuple(replace(column, required=False) for column in found)
        check_optional(found, self.tombstones)
        return Format(self.NAME, found, self._options())

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"tombstones": self.tombstones}
        if self.registry is None:
            options["schema"] = self.schema
        else:
            options |= {
                "registry": self.registry,
                "subjects": list(self.subjects),
                "misfits": self.misfits,
            }
            if self.follows:
                options["schema"] = FOLLOW
        return options

    @classmethod
    def of(cls, declared: Format) -> Self:
        """Return a format of this name with its options checked; raises InvalidPipeline."""
        known = {f.name for f in fields(cls)} - {"columns"}
        if unknown := sorted(declared.options.keys() - known):
            raise refuse(
                f"format {cls.NAME}: expected no other options, found {unknown[0]!r}.",
                f"remove it, or use {cls.__name__}(...).",
            )
        options = dict(declared.options)
        if options.get("schema") == FOLLOW:
            # Its columns are in the plan: the format no longer follows.
            del options["schema"]
        return cls(declared.columns, **options)


def _text_of(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise refuse(
            f"{what}: schema: expected a file of text, found {path} ({error}).",
            "correct the path; Path(__file__).parent is the folder of the DAG file.",
        ) from error


@dataclass(frozen=True, slots=True)
class Avro(_SchemaFormat):
    """The Avro format. Values that do not fit the columns are dead letters, each with its reason.

    `columns`: by default those of the pipeline's first table. A column's `source` is a path in the schema; a union of
    several types is a struct with a field per type.
    `registry`: the values are in Confluent's wire format, and the connection with this name has their schemas. A plan
    contains all schemas of the `subjects` (default: `<topic>-value`, or `<topic>-key` for keys), so that a rerun reads
    with the same ones. `misfits`: if a schema does not fit the columns, its records are dead letters (`dead`), or nothing
    is planned (`stop`).
    `schema`: with a registry, `"follow"`: the columns are those of the schemas there, and change with them. Without a
    registry, the schema of all values: its text, or the path of its file, which is read when the DAG file is.
    `tombstones`: a null value is a dead letter (`dead`), or a row whose columns are all null (`keep`).
    """

    NAME: ClassVar[str] = AVRO

    def __post_init__(self) -> None:
        _SchemaFormat.__post_init__(self)
        if self.schema is not None and not self.follows:
            try:
                json.loads(str(self.schema))
            except ValueError as error:
                raise refuse(
                    f"format avro: schema: expected JSON, found {str(self.schema)[:60]!r} ({error}).",
                    "use the text of an Avro schema, or Path(...) of its file.",
                ) from error


@dataclass(frozen=True, slots=True)
class Protobuf(_SchemaFormat):
    """The Protobuf format. Values that do not fit the columns are dead letters, each with its reason.

    `columns`: by default those of the pipeline's first table. A column's `source` is a path of field names, as they are
    in the `.proto` file; an enum is the name of its value.
    `registry`: the values are in Confluent's wire format, and the connection with this name has their schemas. A plan
    contains all schemas of the `subjects` (default: `<topic>-value`, or `<topic>-key` for keys), so that a rerun reads
    with the same ones. `misfits`: if a schema does not fit the columns, its records are dead letters (`dead`), or nothing
    is planned (`stop`).
    `schema`: with a registry, `"follow"`: the columns are those of the schemas there, and change with them. Without a
    registry, the `.proto` text of all values, or the path of its file, which is read when the DAG file is; it may import
    only `google/protobuf/*.proto`. `message` is then the full name of the values' message, such as `shop.Order`.
    `tombstones`: a null value is a dead letter (`dead`), or a row whose columns are all null (`keep`).
    """

    NAME: ClassVar[str] = PROTOBUF
    message: str | None = None

    def __post_init__(self) -> None:
        _SchemaFormat.__post_init__(self)
        if (self.schema is None or self.follows) != (self.message is None):
            raise refuse(
                f"format protobuf: expected message together with schema, found message={self.message!r}.",
                'add message="package.Message", the full name of the values\' message; with a registry each value names '
                "its message.",
            )

    def _options(self) -> dict[str, Any]:
        options = _SchemaFormat._options(self)
        if self.message is not None:
            options["message"] = self.message
        return options
