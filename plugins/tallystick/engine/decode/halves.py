"""Limits the memory of one batch: a batch whose records have very many elements is decoded in halves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from tallystick.engine.decode.decoder import Decoded, Reason

ELEMENTS_MAX = 1_000_000
"""The elements of lists and entries of maps that are read of one record; a record with more is a dead letter (`size`)."""
SLOT_BYTES_MAX = 256 << 20


TOO_MANY_BYTES = Reason(
    kind="size", detail=f"its values would take more than {SLOT_BYTES_MAX} bytes of memory"
)


class ManySlotsError(Exception):
    """The elements of a batch would take more than SLOT_BYTES_MAX."""


def check_slots(slot_bytes: int, rows: int) -> None:
    """Raise ManySlotsError if that many bytes are too many for a batch, unless it has only one record."""
    if slot_bytes > SLOT_BYTES_MAX and rows > 1:
        raise ManySlotsError


def in_halves(values: pa.Array, decode: Callable[[pa.Array], Decoded], empty: pa.Table) -> Decoded:
    """Return what `decode` returns for the whole batch, or, if it raises ManySlotsError, for its halves together.

    One record for which it is raised is a dead letter; `empty` is the table of no rows.
    """
    try:
        return decode(values)
    except ManySlotsError:
        if len(values) < 2:
            return Decoded(
                rows=empty,
                kept=np.empty(0, np.int64),
                dead=np.arange(len(values)),
                reasons=(TOO_MANY_BYTES,) * len(values),
            )
        middle = len(values) // 2
        left, right = (
            in_halves(values[:middle], decode, empty),
            in_halves(values[middle:], decode, empty),
        )
        return Decoded(
            rows=pa.concat_tables([left.rows, right.rows]),
            kept=np.concatenate([left.kept, right.kept + middle]),
            dead=np.concatenate([left.dead, right.dead + middle]),
            reasons=(*left.reasons, *right.reasons),
        )
