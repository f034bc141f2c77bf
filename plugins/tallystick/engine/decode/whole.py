"""Decodes values that are one column as a whole: texts in UTF-8, and bytes of any kind. No value is copied.

The kinds of reasons are `tombstone`, if the value is null and the column required, and `utf8`, if a text is not UTF-8.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tallystick.engine.decode.decoder import Decoded, Decoder, Reason, schema_of
from tallystick.errors import InvalidPipeline
from tallystick.pipeline import Format

_TYPES = {"text": "string", "raw": "binary"}


def whole_decoder(declared: Format) -> Decoder:
    """Return the decoder of a `text` or `raw` format; raises InvalidPipeline if it has other columns or any options."""
    wanted = _TYPES[declared.name]
    found = [column.text for column in declared.columns]
    if found != [wanted] or declared.options:
        raise InvalidPipeline(
            f"format {declared.name}: expected one column of type {wanted} and no options, found {found} and "
            f"{dict(declared.options)}.",
            hint='use Text("name of the column") or Raw("name of the column").',
        )
    return WholeDecoder(declared)


class WholeDecoder:
    """A decoder of values that are one column as a whole."""

    def __init__(self, declared: Format) -> None:
        (self._column,) = declared.columns
        self._schema = schema_of(declared)

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Return one row per value; a null is a row if the column is optional. Invalid values raise no error."""
        values = batch.column("value")
        kind = self._schema.field(0).type
        reasons: dict[int, Reason] = {}
        try:
            # Arrow validates a batch of texts at once; only one with an invalid text is searched.
            values = values.cast(kind)
        except pa.ArrowInvalid:
            reasons = _invalid_texts(values)
        if self._column.required and values.null_count:
            for position in np.flatnonzero(np.asarray(values.is_null())).tolist():
                reasons[position] = Reason(kind="tombstone", detail="the value is null")
        dead = np.array(sorted(reasons), np.int64)
        kept = np.delete(np.arange(len(values)), dead)
        good = values.take(pa.array(kept)).cast(kind) if len(dead) else values
        return Decoded(
            rows=pa.Table.from_arrays([good], schema=self._schema),
            kept=kept,
            dead=dead,
            reasons=tuple(reasons[at] for at in dead.tolist()),
        )


def _invalid_texts(values: pa.BinaryArray) -> dict[int, Reason]:
    found: dict[int, Reason] = {}
    for position, value in enumerate(values.to_pylist()):
        try:
            if value is not None:
                value.decode()
        except UnicodeDecodeError as error:
            found[position] = Reason(kind="utf8", detail=f"byte {error.start} is not UTF-8")
    return found
