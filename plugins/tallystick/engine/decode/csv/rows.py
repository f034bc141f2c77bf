"""Decodes batches of CSV lines into the declared columns.

The kinds of reasons are those of JSON for single values, and `csv` for quotes and line ends, `fields` for the number of
fields, `utf8`, `size` and `tombstone`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.engine.decode.bound import Bound, UnboundError
from tallystick.engine.decode.csv import kernel
from tallystick.engine.decode.decoder import Decoded, Decoder, Reason
from tallystick.engine.decode.groups import PlainDecoder
from tallystick.engine.decode.json.parsed import VALUE_BYTES_MAX
from tallystick.engine.decode.json.scan import Array
from tallystick.engine.decode.source import SourceRows, wanted
from tallystick.errors import InvalidPipeline
from tallystick.pipeline import Format
from tallystick.pipeline.formats import Csv

_PROBLEMS = {
    kernel.UNCLOSED: "the last quote is not closed",
    kernel.AFTER_QUOTE: "expected a separator after the closing quote",
    kernel.BARE_QUOTE: "a quote in a field that does not begin with one",
    kernel.LINES: "expected one line, found a line end inside of it",
}


def csv_decoder(declared: Format) -> Decoder:
    """Return the decoder of a `csv` format; raises InvalidPipeline for options that it does not have."""
    csv = Csv.of(declared)
    return PlainDecoder(csv.planned(declared.columns), CsvContent(csv))


class CsvContent:
    """A decoder of lines. Raises InvalidPipeline if a column reads a field that is not declared."""

    def __init__(self, csv: Csv) -> None:
        columns = csv.columns or ()
        self._names = tuple(csv.fields or (column.name for column in columns))
        self._separator = ord(csv.separator)
        self._quote = ord(csv.quote) if csv.quote is not None else -1
        self._null = csv.null
        self._read = wanted(columns).fields
        kind = pa.struct([(name, pa.string()) for name in self._names if name in self._read])
        try:
            self._bound = Bound(columns, kind, texts=True)
        except UnboundError as error:
            raise InvalidPipeline(
                f"format csv: {error.reason}.",
                hint="read a field by its name in fields=[...]; without fields, the columns are the fields in their "
                "order. A field is one primitive value.",
            ) from error

    def decode(self, values: pa.BinaryArray, *, prefix: int) -> Decoded:
        """Decode values without null; the first `prefix` bytes of each must be none."""
        assert prefix == 0
        rows, count = len(values), len(self._names)
        _, offsets, content = values.buffers()
        text = np.frombuffer(content, np.uint8) if content else np.zeros(1, np.uint8)
        starts = np.zeros(1, np.int32)
        if offsets is not None and offsets.size:
            starts = np.frombuffer(offsets, np.int32)[values.offset :][: rows + 1]
        kinds, found = np.zeros((count, rows), np.uint8), np.zeros(rows, np.int32)
        begins, sizes = np.zeros((count, rows), np.int32), np.zeros((count, rows), np.int32)
        verdicts = np.zeros(rows, np.uint8)
        dead = self._invalid(values, np.diff(starts))
        verdicts[list(dead)] = kernel.LINES
        kernel.find_fields(
            text, starts, self._separator, self._quote, kinds, begins, sizes, verdicts, found
        )
        for row in np.flatnonzero(verdicts).tolist():
            if row not in dead:
                dead[row] = self._reason(int(verdicts[row]), int(found[row]))
        arrays, names = [], []
        for number, name in enumerate(self._names):
            if name in self._read:
                names.append(name)
                arrays.append(self._texts(text, kinds[number], begins[number], sizes[number]))
        source = pa.StructArray.from_arrays(arrays, names)
        return self._bound.decoded(SourceRows(rows=source, dead=dead))

    def _invalid(self, values: pa.BinaryArray, sizes: Array) -> dict[int, Reason]:
        """Return the reasons of the lines that are too long or not UTF-8, so that each field of the others is text."""
        dead = {
            row: Reason(
                kind="size", detail=f"the value has {sizes[row]} bytes, more than {VALUE_BYTES_MAX}"
            )
            for row in np.flatnonzero(sizes > VALUE_BYTES_MAX).tolist()
        }
        try:
            values.cast(pa.string())
        except pa.ArrowInvalid:
            for row, value in enumerate(values.to_pylist()):
                try:
                    value.decode()
                except UnicodeDecodeError as error:
                    detail = f"byte {error.start} is not UTF-8"
                    dead.setdefault(row, Reason(kind="utf8", detail=detail))
        return dead

    def _reason(self, verdict: int, found: int) -> Reason:
        if verdict in (kernel.FEWER, kernel.MORE):
            return Reason(
                kind="fields", detail=f"expected {len(self._names)} fields, found {found}"
            )
        return Reason(kind="csv", detail=_PROBLEMS[verdict])

    def _texts(self, text: Array, kinds: Array, begins: Array, sizes: Array) -> pa.StringArray:
        offsets = np.zeros(len(kinds) + 1, np.int32)
        kernel.measure_fields(text, self._quote, kinds, begins, sizes, offsets)
        out = np.empty(int(offsets[-1]), np.uint8)
        kernel.copy_fields(text, self._quote, kinds, begins, offsets, out)
        found = pa.Array.from_buffers(
            pa.string(), len(kinds), [None, pa.py_buffer(offsets), pa.py_buffer(out)]
        )
        null = pa.array(kinds == kernel.NOTHING)
        if self._null is not None:
            # A field in quotes is a text, also if it is that of null.
            null = pc.or_(
                null, pc.and_(pc.equal(found, self._null), pa.array(kinds == kernel.BARE))
            )
        return pc.if_else(null, None, found)
