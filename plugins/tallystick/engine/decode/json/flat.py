"""Reads the columns that have one plain value per record: all of them from some records, then from the next ones.

The text of a batch is larger than a core's cache. Column by column, each value of the batch is a wait for memory; so a
compiled loop reads the values of all columns from a block of records, whose text stays in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tallystick.engine.decode.json.layout import ColumnPlace
from tallystick.engine.decode.json.leaves import (
    WholeNumber,
    doubles,
    leaf_array,
    whole_number,
)
from tallystick.engine.decode.json.locate import Found
from tallystick.engine.decode.json.read import (
    FIELD,
    copy_strings,
    measure_strings,
    read_doubles,
    read_scaled,
)
from tallystick.engine.decode.json.scan import Array, Int
from tallystick.format.types import STRUCT
from tallystick.pipeline.columns import JSON_TEXT
from tallystick.runtime.compiled import (
    INT32S,
    INT64S,
    INT64S_OUT,
    NUMBER,
    UINT8S_OUT,
    ArrayOf,
    LoopGroup,
)

# The text of a block: a quarter of the cache of a core, which has its other arrays, too.
BLOCK_BYTES = 256 << 10
_BLOCK_ROWS_MIN, _BLOCK_ROWS_MAX = 64, 8_192
# A job of the loop: what it reads; where its node's values begin; its row of the results; and a whole number's scale and
# bounds, or where the texts of a string column begin and end.
_WORDS = 6
_WHOLE, _DOUBLE, _TEXT = range(3)
loops = LoopGroup(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatColumns:
    """The columns of a layout, and the parts of its structs, that have one plain value per record."""

    whole: Sequence[tuple[ColumnPlace, WholeNumber]]
    double: Sequence[ColumnPlace]
    text: Sequence[ColumnPlace]

    @classmethod
    def of(cls, places: Sequence[ColumnPlace]) -> FlatColumns:
        """Return those of a layout's places."""
        plain = tuple(_plain(places))
        numbers = ((place, whole_number(place.column)) for place in plain)
        return cls(
            whole=tuple((place, number) for place, number in numbers if number is not None),
            double=tuple(p for p in plain if p.column.type in ("double", "float")),
            text=tuple(
                p for p in plain if p.column.type == "string" and p.column.parse != JSON_TEXT
            ),
        )

    def read(self, found: Found, needs_exact: Array) -> Mapping[ColumnPlace, pa.Array]:
        """Return the values of these columns; mark the records that are not proven in `needs_exact`."""
        rows = len(needs_exact)
        fields = {
            place: found.field(place.node.number, needs_exact)
            for place in (*(p for p, _ in self.whole), *self.double, *self.text)
        }
        longs = np.zeros((len(self.whole), rows), np.int64)
        numbers = np.zeros((len(self.double), rows), np.float64)
        hard = np.zeros((len(self.double), rows), np.uint8)
        offsets = np.zeros((len(self.text), rows + 1), np.int32)
        for place, one in zip(self.text, offsets, strict=True):
            field = fields[place]
            measure_strings(
                field.text, field.kinds, field.begins, field.sizes, one, field.needs_exact
            )
        ends = np.cumsum(offsets[:, -1], dtype=np.int64)
        texts = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        spans = list(zip(ends - offsets[:, -1], ends, strict=True))
        read_flat(
            found.text,
            found.arrays.kinds,
            found.arrays.begins,
            found.arrays.sizes,
            self._jobs(found, spans),
            rows,
            _block_rows(len(found.text), rows),
            longs.reshape(-1),
            numbers.reshape(-1),
            hard.reshape(-1),
            offsets.reshape(-1),
            texts,
            needs_exact,
        )
        arrays = {p: number.array(fields[p], longs[i]) for i, (p, number) in enumerate(self.whole)}
        for i, place in enumerate(self.double):
            arrays[place] = doubles(fields[place], place.column.type, numbers[i], hard[i])
        for i, place in enumerate(self.text):
            begin, end = spans[i]
            arrays[place] = leaf_array(fields[place], pa.string(), offsets[i], texts[begin:end])
        return arrays

    def _jobs(self, found: Found, spans: Sequence[tuple[int, int]]) -> Array:
        base = found.arrays.base
        jobs = [
            (_WHOLE, base[place.node.number], row, number.scale, number.low, number.high)
            for row, (place, number) in enumerate(self.whole)
        ]
        jobs += [
            (_DOUBLE, base[place.node.number], row, 0, 0, 0)
            for row, place in enumerate(self.double)
        ]
        jobs += [
            (_TEXT, base[place.node.number], row, *spans[row], 0)
            for row, place in enumerate(self.text)
        ]
        return np.array(jobs, np.int64).reshape(-1)


def _plain(places: Sequence[ColumnPlace]) -> Iterator[ColumnPlace]:
    """Yield the places with one value per record, also inside of structs."""
    for place in places:
        if place.column.type == STRUCT:
            yield from _plain(place.parts)
        elif not place.parts:
            yield place


def _block_rows(text_bytes: int, rows: int) -> int:
    found = BLOCK_BYTES * rows // max(text_bytes, 1)
    return min(max(found, _BLOCK_ROWS_MIN), _BLOCK_ROWS_MAX)


@loops.loop(
    *FIELD,
    INT64S,  # jobs
    NUMBER,
    NUMBER,
    INT64S_OUT,  # whole numbers, by job and row
    ArrayOf("<f8"),  # doubles, by job and row
    UINT8S_OUT,  # hard ones, by job and row
    INT32S,  # offsets of strings, by job and row
    UINT8S_OUT,  # the texts of all string columns
    UINT8S_OUT,
)
def read_flat(
    content: Array,
    kinds: Array,
    begins: Array,
    sizes: Array,
    jobs: Array,
    rows: Int,
    block_rows: Int,
    longs: Array,
    numbers: Array,
    hard: Array,
    offsets: Array,
    texts: Array,
    needs_exact: Array,
) -> None:
    """Read the values of all jobs, block by block; `kinds`, `begins` and `sizes` are those of all nodes."""
    for first in range(0, rows, block_rows):
        last = min(first + block_rows, rows)
        for job in range(0, jobs.size, _WORDS):
            at, end = jobs[job + 1] + first, jobs[job + 1] + last
            row, row_end = jobs[job + 2] * rows + first, jobs[job + 2] * rows + last
            if jobs[job] == _WHOLE:
                read_scaled(
                    content,
                    kinds[at:end],
                    begins[at:end],
                    sizes[at:end],
                    jobs[job + 3],
                    False,
                    jobs[job + 4],
                    jobs[job + 5],
                    longs[row:row_end],
                    needs_exact[first:last],
                )
            elif jobs[job] == _DOUBLE:
                read_doubles(
                    content,
                    kinds[at:end],
                    begins[at:end],
                    sizes[at:end],
                    numbers[row:row_end],
                    hard[row:row_end],
                    needs_exact[first:last],
                )
            else:
                row += jobs[job + 2]
                copy_strings(
                    content,
                    kinds[at:end],
                    begins[at:end],
                    offsets[row : row + last - first + 1],
                    sizes[at:end],
                    texts[jobs[job + 3] : jobs[job + 4]],
                )
