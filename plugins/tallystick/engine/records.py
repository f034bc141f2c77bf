"""Prepares batches of raw records for the job: joins them to a useful size and adds their lineage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.engine.decode.decoder import Decoded, Reason
from tallystick.engine.input_splits import InputSplit
from tallystick.tables.calendar import END_US, FIRST_US

KEY = "_key"
TOPIC = "_topic"
BATCH_ROWS = 65_536
BATCH_BYTES = 32 << 20
FIRST_MS = FIRST_US // 1_000
LAST_MS = END_US // 1_000 - 1


def coalesce(
    batches: Iterable[pa.RecordBatch], *, rows: int = BATCH_ROWS, bytes_max: int = BATCH_BYTES
) -> Iterator[pa.RecordBatch]:
    """Join small batches to at most `rows` rows and `bytes_max` bytes; rows and their order do not change.

    Each batch has a fixed cost in Python and Arrow, so larger batches are cheaper. A larger batch is passed on as it is,
    and a batch that almost fills the limits is not copied.
    """
    waiting: list[pa.RecordBatch] = []
    held_rows = held_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        full = held_bytes + batch.nbytes > bytes_max or held_rows + batch.num_rows > rows
        if waiting and full:
            yield _joined(waiting)
            waiting, held_rows, held_bytes = [], 0, 0
        waiting.append(batch)
        held_rows, held_bytes = held_rows + batch.num_rows, held_bytes + batch.nbytes
        if held_rows >= rows or held_bytes >= bytes_max:
            yield _joined(waiting)
            waiting, held_rows, held_bytes = [], 0, 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def lineage(
    split: InputSplit, batch: pa.RecordBatch, positions: pa.Array | None, *, topic: str
) -> dict[str, pa.Array]:
    """Return the lineage columns of the rows of `batch` at `positions` (None: all rows), with `topic` as `_topic`."""
    offsets, timestamps = batch.column("offset"), batch.column("timestamp")
    if positions is not None:
        offsets, timestamps = offsets.take(positions), timestamps.take(positions)
    rows = len(offsets)
    return {
        "_topic": pa.repeat(pa.scalar(topic, pa.string()), rows),
        "_kafka_partition": pa.array(np.full(rows, split.partition, np.int32)),
        "_offset": offsets,
        "_timestamp": _within_calendar(timestamps),
    }


def _within_calendar(timestamps: pa.Array) -> pa.Array:
    """Return milliseconds as `_timestamp` values: microseconds, clamped to the years 1 to 9999."""
    millis = np.clip(timestamps.cast(pa.int64()).to_numpy(zero_copy_only=False), FIRST_MS, LAST_MS)
    return pa.array(millis * 1_000).cast(pa.timestamp("us", tz="UTC"))


def without_invalid_times(batch: pa.RecordBatch, decoded: Decoded) -> Decoded:
    """Make dead letters of the records whose own timestamp is outside the years 1 to 9999.

    Kafka accepts any 64 bits as milliseconds, such as a count of nanoseconds, and `_timestamp` cannot hold them all. The
    value is not lost: the reason contains the original timestamp, and `_timestamp` of the dead letter is the nearest
    value that fits.
    """
    millis = batch.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False)
    outside = (millis < FIRST_MS) | (millis > LAST_MS)
    if not outside.any():
        return decoded
    reasons = dict(zip(decoded.dead.tolist(), decoded.reasons, strict=True))
    for position in np.flatnonzero(outside).tolist():
        reasons[position] = Reason(
            kind="timestamp",
            detail=f"{millis[position]} ms, the record's own time, lies outside the years 1 to 9999",
        )
    dead = sorted(reasons)
    good = ~outside[decoded.kept]
    return Decoded(
        rows=decoded.rows.filter(pa.array(good)),
        kept=decoded.kept[good],
        dead=np.array(dead, np.int64),
        reasons=tuple(reasons[position] for position in dead),
    )


def records_of(split: InputSplit, batch: pa.RecordBatch, decoded: Decoded) -> pa.Table:
    """Return the input of the job's transform: decoded columns, lineage with Kafka's topic name, and the record's key."""
    whole = len(decoded.kept) == batch.num_rows
    positions = None if whole else pa.array(decoded.kept)
    columns = {name: decoded.rows.column(name) for name in decoded.rows.column_names}
    columns.update(lineage(split, batch, positions, topic=split.source))
    columns[KEY] = batch.column("key") if positions is None else batch.column("key").take(positions)
    return pa.table(columns)


def named_by_ledger(rows: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """Return a transform's rows with the ledger's names in `_topic`; `names` maps Kafka's topic names to the ledger's.

    A job gets Kafka's name, so it does not change when another incarnation of its topic is adopted. Stored rows have the
    ledger's name, which differs per incarnation: topic, partition and offset always identify exactly one record.
    """
    renamed = {kafka: name for kafka, name in names.items() if kafka != name}
    if not renamed or TOPIC not in rows.column_names:
        return rows
    column = rows.column(TOPIC)
    for kafka, name in renamed.items():
        column = pc.if_else(pc.equal(column, kafka), name, column)
    return rows.set_column(rows.column_names.index(TOPIC), rows.schema.field(TOPIC), column)
