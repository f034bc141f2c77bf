"""Turns decoded events into rows: the state that belongs to the operation, and the columns of the event.

An event is read once. Only deletions are read a second time, for the row before the change: its columns are then decoded
by the same rules as those of the row after it, and what an update has in `before` makes no record dead.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.engine.decode.conversions import Reasons, shown
from tallystick.engine.decode.debezium.columns import (
    AFTER,
    BEFORE,
    OP,
    TS_MS,
    TS_US,
    EventColumns,
    event_name,
)
from tallystick.engine.decode.decoder import Decoded, Positions, Reason, schema_of
from tallystick.engine.decode.groups import ContentDecoder
from tallystick.engine.decode.json.scan import Array
from tallystick.pipeline import Debezium

# io.debezium.data.Envelope.Operation.
_OPS = ("c", "r", "u", "d", "t", "m")
_DELETE, _TRUNCATE, _MESSAGE, _OTHER, _NONE = 3, 4, 5, -1, -2
_CODES = pa.array(_OPS)


class EventContent:
    """A decoder of the events of one shape: of one schema, or of JSON with the event at one place."""

    def __init__(
        self,
        debezium: Debezium,
        columns: EventColumns,
        first: ContentDecoder,
        deleted: ContentDecoder,
    ) -> None:
        self._columns = columns
        self._first = first
        self._deleted = deleted
        self._keeps_truncates = debezium.truncates == "keep"
        self._schema = schema_of(debezium.planned(()))

    def read(self, values: pa.BinaryArray, *, prefix: int) -> tuple[Decoded, Positions]:
        """Decode values without null, and return the positions of those without an operation separately.

        `prefix` is the number of bytes of each value before its content.
        """
        found = self._first.decode(values, prefix=prefix)
        rows = found.rows.combine_chunks()
        ops = _operations(rows.column(OP))
        reasons: Reasons = {}
        state = self._columns.converted_rows(_chunk(rows, AFTER), AFTER, reasons)
        deleted = np.flatnonzero(ops == _DELETE)
        if deleted.size:
            taken = values.take(pa.array(found.kept[deleted]))
            state = self._with_deleted(state, deleted, taken, prefix, reasons)
        self._refuse_operations(rows, ops, state, reasons)
        state = _without(state, ops == _TRUNCATE)
        arrays = [*state.flatten(), *self._beyond_rows(rows, reasons)]
        return self._kept(found, arrays, ops, reasons)

    def _with_deleted(
        self,
        state: pa.StructArray,
        deleted: Array,
        values: pa.BinaryArray,
        prefix: int,
        reasons: Reasons,
    ) -> pa.StructArray:
        """Return the states with those of the deleted rows, which are read from their values."""
        before = self._deleted.decode(values, prefix=prefix)
        reasons.update(zip(deleted[before.dead].tolist(), before.reasons, strict=True))
        refused: Reasons = {}
        rows = self._columns.converted_rows(_chunk(before.rows, BEFORE), BEFORE, refused)
        places = deleted[before.kept]
        reasons.update((int(places[slot]), reason) for slot, reason in refused.items())
        return _replaced(state, places, rows)

    def _refuse_operations(
        self, rows: pa.Table, ops: Array, state: pa.StructArray, reasons: Reasons
    ) -> None:
        for row in np.flatnonzero((ops == _OTHER) | (ops == _MESSAGE)).tolist():
            reasons.setdefault(row, _of_operation(rows.column(OP)[row], self._columns.place_of(OP)))
        if not self._keeps_truncates:
            for row in np.flatnonzero(ops == _TRUNCATE).tolist():
                reasons.setdefault(row, Reason(kind="truncate", detail="the table was truncated"))
        if state.null_count:
            absent = np.asarray(state.is_null()) & (ops >= 0) & (ops <= _DELETE)
            for row in np.flatnonzero(absent).tolist():
                name = BEFORE if ops[row] == _DELETE else AFTER
                detail = f"op {_OPS[ops[row]]}: expected the row {name} the change, found none"
                reasons.setdefault(
                    row, Reason(kind="state", field=self._columns.place_of(name), detail=detail)
                )

    def _beyond_rows(self, rows: pa.Table, reasons: Reasons) -> list[pa.Array]:
        """Return the columns of the event, one value per row of `rows`; rows that are refused get a reason."""
        columns = self._columns
        out = [_chunk(rows, OP)]
        if columns.has_time:
            # Debezium before 2.6 has no ts_us.
            out.append(pc.coalesce(_chunk(rows, TS_US), _chunk(rows, TS_MS)))
        for number, column in enumerate(columns.event):
            place = columns.place(column)
            found = columns.converted(
                column, _chunk(rows, event_name(number)), place, reasons, of_row=False
            )
            if column.required and found.null_count:
                for row in np.flatnonzero(np.asarray(found.is_null())).tolist():
                    reasons.setdefault(
                        row, Reason(kind="null", detail="required, and null or absent", field=place)
                    )
            out.append(found)
        if columns.before is not None:
            out.append(columns.converted_rows(_chunk(rows, BEFORE), BEFORE, reasons))
        return out

    def _kept(
        self, found: Decoded, arrays: list[pa.Array], ops: Array, reasons: Reasons
    ) -> tuple[Decoded, Positions]:
        """Return the rows without a reason, with all dead letters, and the positions without an operation."""
        without = ops == _NONE
        alive = ~without
        alive[list(reasons)] = False
        if not alive.all():
            keep = pa.array(np.flatnonzero(alive))
            arrays = [array.take(keep) for array in arrays]
        dead = dict(zip(found.dead.tolist(), found.reasons, strict=True))
        for row, reason in reasons.items():
            if not without[row]:
                dead[int(found.kept[row])] = reason
        positions = sorted(dead)
        decoded = Decoded(
            rows=pa.Table.from_arrays(arrays, schema=self._schema),
            kept=found.kept[alive],
            dead=np.array(positions, np.int64),
            reasons=tuple(dead[position] for position in positions),
        )
        return decoded, found.kept[without]


def _operations(values: pa.ChunkedArray) -> Array:
    """Return the position of each operation in _OPS; _OTHER for any other, _NONE for null."""
    found = pc.fill_null(pc.index_in(values, _CODES), _OTHER)
    codes: Array = found.to_numpy().astype(np.int64)
    if values.null_count:
        codes[np.asarray(values.is_null())] = _NONE
    return codes


def _of_operation(op: pa.Scalar, place: str) -> Reason:
    if op.as_py() == _OPS[_MESSAGE]:
        return Reason(kind="message", detail="a logical decoding message, no change of a row")
    return Reason(
        kind="op", detail=f"expected one of {', '.join(_OPS)}, found {shown(op)}", field=place
    )


def _chunk(table: pa.Table, name: str) -> pa.Array:
    """Return a column as one array."""
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _replaced(values: pa.Array, at: Positions, others: pa.Array) -> pa.Array:
    """Return the values with `others` at the positions `at`."""
    places = np.arange(len(values))
    places[at] = len(values) + np.arange(len(at))
    return pa.concat_arrays([values, others]).take(pa.array(places))


def _without(values: pa.Array, absent: Array) -> pa.Array:
    """Return the values with null where `absent` is True."""
    if not absent.any():
        return values
    return values.take(pa.array(np.arange(len(values)), mask=absent))
