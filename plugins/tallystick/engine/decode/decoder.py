"""The interface of a decoder: batches of records in; typed rows out, with a reason for each record that has no row.

A decoder is found by the name of its format. Those of tallystick's own formats are built in. A package registers another
decoder as an entry point of the group `tallystick.decoders`, whose value is a DecoderFactory, on every machine that runs
Spark tasks:

    [project.entry-points."tallystick.decoders"]
    semicolons = "company_formats.semicolons:LineDecoder"

Importing this module loads no decoder: the driver decodes nothing, and JSON's kernels take half a second to load.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any, Protocol, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tallystick.errors import InvalidPipeline, listed
from tallystick.format.registries import PlannedRegistry
from tallystick.pipeline import Format
from tallystick.tables.schema import arrow_schema

GROUP = "tallystick.decoders"
_BUILT_IN = {
    "text": "tallystick.engine.decode.whole:whole_decoder",
    "raw": "tallystick.engine.decode.whole:whole_decoder",
    "csv": "tallystick.engine.decode.csv.rows:csv_decoder",
}
_WITH_SCHEMAS = {
    "json": "tallystick.engine.decode.json.rows:json_decoder",
    "debezium": "tallystick.engine.decode.debezium.rows:debezium_decoder",
    "avro": "tallystick.engine.decode.avro.rows:avro_decoder",
    "protobuf": "tallystick.engine.decode.protobuf.rows:protobuf_decoder",
}
Positions = NDArray[np.int64]
REASON_CHARS_MAX = 240
_KIND = re.compile(r"[a-z][a-z0-9_]{0,39}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """The reason why a record has no row: its kind, the field of the value that it is about, and the details.

    `kind` is a lower-case name with few different values, by which dead letters are grouped. `field` is None if the
    reason is about the whole value. `detail` may contain a part of the value. Raises ValueError for another kind, or if
    there is no detail.
    """

    kind: str
    detail: str
    field: str | None = None

    def __post_init__(self) -> None:
        if not _is_kind(self.kind) or not self.detail:
            raise ValueError(
                f"expected a lower-case name and a detail, found {self.kind!r} and {self.detail!r}"
            )
        # A part of a value can have half of a surrogate pair, which no stored text has.
        if not self.detail.isascii():
            object.__setattr__(self, "detail", _storable(self.detail))
        if self.field is not None and not self.field.isascii():
            object.__setattr__(self, "field", _storable(self.field))

    def __str__(self) -> str:
        place = f"field {self.field}: " if self.field is not None else ""
        return shorten(f"{self.kind}: {place}{self.detail}", REASON_CHARS_MAX)


@lru_cache(maxsize=1_000)
def _is_kind(kind: str) -> bool:
    # There are few kinds, and a batch can have a reason per record.
    return _KIND.fullmatch(kind) is not None


def _storable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def shorten(text: str, chars_max: int) -> str:
    """Truncate `text` to `chars_max` characters, ending in `...`."""
    return text if len(text) <= chars_max else text[: chars_max - 3] + "..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """One decoded batch. Each position of the batch is either in `kept` or in `dead`, and both are ascending.

    `rows` has the declared columns of the records at `kept`; `reasons` has one for each position in `dead`.
    """

    rows: pa.Table
    kept: Positions
    dead: Positions
    reasons: tuple[Reason, ...]


class Decoder(Protocol):
    """A decoder of one topic's records. Each task has its own instance, which keeps no state between batches."""

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode one batch with the columns offset, timestamp, key, value and headers; a null value is a tombstone.

        The same batch must give the same result on any machine. If a record does not fit the columns, it is dead, with a
        reason; this is not an error.
        """
        ...


DecoderFactory = Callable[[Format], Decoder]
"""Builds a decoder for a declared format; raises InvalidPipeline if it does not allow the options."""
_SchemaDecoderFactory = Callable[[Format, Sequence[PlannedRegistry]], Decoder]


def decoder_of(declared: Format, registries: Sequence[PlannedRegistry] = ()) -> Decoder:
    """Return the decoder of a declared format; raises InvalidPipeline if none is installed under its name.

    `registries` have the schemas of the formats that read them from a registry.
    """
    if path := _BUILT_IN.get(declared.name):
        return cast("DecoderFactory", _named(path))(declared)
    if path := _WITH_SCHEMAS.get(declared.name):
        return cast("_SchemaDecoderFactory", _named(path))(declared, registries)
    installed = {point.name: point for point in entry_points(group=GROUP)}
    if declared.name not in installed:
        names = sorted({*_BUILT_IN, *_WITH_SCHEMAS, *installed})
        raise InvalidPipeline(
            f"format {declared.name!r}: expected the name of an installed decoder, one of {listed(names)}.",
            hint=f"install the package that registers {declared.name!r} in the entry point group {GROUP!r} on "
            "every machine that runs Spark tasks, or correct the name in the Topic.",
        )
    factory: DecoderFactory = installed[declared.name].load()
    return _Checked(declared, factory(declared))


def _named(path: str) -> Any:
    module, name = path.split(":")
    return getattr(importlib.import_module(module), name)


class _Checked:
    """A check of another package's decoder: the task stops if a record is in neither `kept` nor `dead`, or in both."""

    def __init__(self, declared: Format, decoder: Decoder) -> None:
        self._declared = declared
        self._decoder = decoder
        self._schema = schema_of(declared)

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        decoded = self._decoder.decode(batch)
        if problem := self._problem(decoded, batch.num_rows):
            raise InvalidPipeline(
                f"decoder {self._declared.name!r}: {problem}.",
                hint="fix the decoder: the docstring of tallystick.engine.decode.decoder states what it must "
                "return. Nothing was committed.",
            )
        return decoded

    def _problem(self, decoded: Decoded, records: int) -> str | None:
        positions = np.concatenate([decoded.kept, decoded.dead])
        if not np.array_equal(np.sort(positions), np.arange(records)):
            return f"expected each of {records} positions once, kept or dead, found {len(positions)} positions"
        if any((np.diff(part) < 0).any() for part in (decoded.kept, decoded.dead)):
            return "expected ascending positions"
        if len(decoded.reasons) != len(decoded.dead) or decoded.rows.num_rows != len(decoded.kept):
            return (
                f"expected {len(decoded.kept)} rows and {len(decoded.dead)} reasons, found {decoded.rows.num_rows} and "
                f"{len(decoded.reasons)}"
            )
        if others := [one for one in decoded.reasons if not isinstance(one, Reason)]:
            return f"expected a Reason for each dead letter, found {others[0]!r}"
        found = decoded.rows.schema
        if found.names != self._schema.names or found.types != self._schema.types:
            return f"expected the columns {self._schema!s}, found {found!s}".replace("\n", ", ")
        for field in self._schema:
            if not field.nullable and decoded.rows.column(field.name).null_count:
                return f"expected no null in the required column {field.name!r}"
        return None


def schema_of(declared: Format) -> pa.Schema:
    """Return the Arrow schema of a format's rows."""
    return arrow_schema(declared.columns)
