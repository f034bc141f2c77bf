"""Decoded values in the types of their own format, before `bound` converts them to the declared columns.

A format with a schema (Avro, Protobuf) or with fields of text (CSV) decodes a batch into Arrow arrays of its own types,
with only the fields that a column reads. The conversion to the declared types, with its reasons, is the same for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tallystick.engine.decode.decoder import Decoded, Reason
from tallystick.format.types import LIST, MAP, STRUCT
from tallystick.pipeline import Column


class Wanted:
    """The fields of a value that are read. `whole`: all of it, for a primitive value.

    `fields`: what is read of the fields of a struct, or of a map's entries by their key. `inside`: what is read of the
    elements of a list or of the values of a map; None if they are not read.
    """

    __slots__ = ("fields", "inside", "whole")

    def __init__(self) -> None:
        self.whole = False
        self.fields: dict[str, Wanted] = {}
        self.inside: Wanted | None = None

    def field(self, name: str) -> Wanted:
        """Return what is read of a field, to which more can be added."""
        return self.fields.setdefault(name, Wanted())

    def elements(self) -> Wanted:
        """Return what is read of the elements or entries, to which more can be added."""
        if self.inside is None:
            self.inside = Wanted()
        return self.inside

    @property
    def entry(self) -> Wanted:
        """What is read of a map's values: those of all entries, and those of entries by their key."""
        found = Wanted()
        for part in (*([self.inside] if self.inside else ()), *self.fields.values()):
            found.add(part)
        return found

    def add(self, other: Wanted) -> None:
        """Also read what `other` reads."""
        self.whole |= other.whole
        for name, part in other.fields.items():
            self.field(name).add(part)
        if other.inside is not None:
            self.elements().add(other.inside)


def wanted(columns: Iterable[Column]) -> Wanted:
    """Return the fields of a value that the columns read."""
    found = Wanted()
    for column in columns:
        place = found
        for part in column.path:
            place = place.elements() if isinstance(part, int) else place.field(part)
        _add_parts(place, column)
    return found


def _add_parts(place: Wanted, column: Column) -> None:
    if column.type == STRUCT:
        for part in column.fields:
            inner = place
            for step in part.path:
                inner = inner.elements() if isinstance(step, int) else inner.field(step)
            _add_parts(inner, part)
    elif column.type in (LIST, MAP):
        _add_parts(place.elements(), column.fields[-1])
    else:
        place.whole = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRows:
    """One batch in the types of its format: one struct per record, and the reasons of the records that have no row.

    The structs of dead records have values of any kind, which are not used.
    """

    rows: pa.StructArray
    dead: Mapping[int, Reason] = field(default_factory=dict)


def kept_and_dead(rows: pa.Table, dead: Mapping[int, Reason]) -> Decoded:
    """Return the rows without those of dead records; `rows` has one per record of the batch."""
    positions = np.array(sorted(dead), np.int64)
    kept: NDArray[np.int64] = np.arange(rows.num_rows)
    if len(positions):
        kept = np.delete(kept, positions)
        rows = rows.take(pa.array(kept))
    return Decoded(
        rows=rows,
        kept=kept,
        dead=positions,
        reasons=tuple(dead[at] for at in positions.tolist()),
    )
