"""The use case `tally dead-letters`: count the dead letters of a lake by kind and field, with a few of them as samples.

Only the files of the table `dead_letters` are read, one in memory at a time, and only those of the requested time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tallystick.errors import Corrupt, InvalidRequest
from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.format.page import Entry
from tallystick.lake import Lake, Snapshot
from tallystick.operations.status.outline import StatusCache
from tallystick.pipeline import DEAD_LETTER_COLUMNS, DEAD_LETTERS

if TYPE_CHECKING:
    import pyarrow as pa

Watch = Callable[[str, int, int], None]
# Kinds come from decoders, and a column name is part of each. If there are more than this, the rest is counted together.
KINDS_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedLetters:
    """The dead letters to count: of a kind, of a field, of the intervals that overlap `within`; None means all.

    `samples`: how many records to return of each kind and field.
    """

    kind: str | None = None
    field: str | None = None
    within: Interval | None = None
    samples: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One record of the table `dead_letters`, with the interval that contains it."""

    interval: Interval
    topic: str
    partition: int
    offset: int
    at: datetime
    key: bytes | None
    value: bytes | None
    headers: str | None
    reason: str


@dataclass(slots=True, kw_only=True)
class KindOfDeadLetter:
    """The dead letters of one kind and field: their number, their intervals with counts, and the first samples."""

    kind: str
    field: str | None
    count: int = 0
    intervals: dict[Interval, int] = dataclasses.field(default_factory=dict)
    samples: list[DeadLetter] = dataclasses.field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """The counted dead letters of a lake under one root, the most frequent kind first.

    `records`: all records and dead letters of the requested time. `intervals`: the committed intervals in it. `dag`: the
    DAG of the latest of these intervals that has dead letters, None if there is none.
    """

    uri: str
    pipeline: str
    version: int
    records: int
    intervals: int
    kinds: tuple[KindOfDeadLetter, ...]
    dag: str | None

    @property
    def count(self) -> int:
        """The number of dead letters that were counted."""
        return sum(one.count for one in self.kinds)

    @property
    def found_in(self) -> tuple[Interval, ...]:
        """The intervals that contain the counted dead letters, by time."""
        return tuple(sorted({interval for one in self.kinds for interval in one.intervals}))


def read_dead_letters(
    lake: Lake,
    wanted: WantedLetters,
    *,
    watch: Watch | None = None,
    cache: StatusCache | None = None,
) -> DeadLetters:
    """Count the wanted dead letters under the current root; nothing is written.

    `watch` is called with (what, done, total) for each file. `cache`: what was read of the lake's ledger before.
    Raises RootVanished if there is no root, Corrupt if a file is gone or unreadable, InvalidRequest if the lake has dead
    letters without a kind, and the errors of the store.
    """
    known = cache or StatusCache()
    return lake.read(
        lambda snapshot: _from_snapshot(
            lake, snapshot, known.ledger(snapshot).entries, wanted, watch
        )
    )


def _from_snapshot(
    lake: Lake,
    snapshot: Snapshot,
    ledger: Sequence[Entry],
    wanted: WantedLetters,
    watch: Watch | None,
) -> DeadLetters:
    entries = [
        e
        for e in ledger
        if e.committed and (wanted.within is None or e.interval.overlaps(wanted.within))
    ]
    with_dead = [e for e in entries if e.committed and e.committed.totals.dead_letters]
    table = snapshot.root.tables.get(DEAD_LETTERS)
    kinds: dict[tuple[str, str | None], KindOfDeadLetter] = {}
    if table is not None and table.metadata is not None and with_dead:
        files = _files(lake, table.metadata, {e.interval for e in with_dead})
        for number, (interval, key) in enumerate(files):
            if watch is not None:
                watch("dead letters", number, len(files))
            _count(lake, interval, key, wanted, kinds)
        if watch is not None:
            watch("dead letters", len(files), len(files))
    totals = [e.committed.totals for e in entries if e.committed]
    latest = with_dead[-1].committed if with_dead else None
    return DeadLetters(
        uri=lake.store.uri,
        pipeline=snapshot.root.pipeline,
        version=snapshot.root.version,
        records=sum(t.records + t.dead_letters for t in totals),
        intervals=len(entries),
        kinds=tuple(sorted(kinds.values(), key=lambda one: (-one.count, one.kind))),
        dag=latest.request.dag if latest is not None else None,
    )


def _files(lake: Lake, metadata: str, wanted: set[Interval]) -> list[tuple[Interval, str]]:
    """Return the live files of these intervals with their interval, by time."""
    # Imported here, because the import of PyIceberg takes a third of a second.
    from tallystick.tables.reading import live_files

    found: list[tuple[Interval, str]] = []
    for file in live_files(lake.store, metadata):
        start, end = keys.part_interval(keys.data_file_parts(file.key)[1])
        interval = Interval(start=start, end=end)
        if interval in wanted:
            found.append((interval, file.key))
    return sorted(found)


def _count(
    lake: Lake,
    interval: Interval,
    key: str,
    wanted: WantedLetters,
    kinds: dict[tuple[str, str | None], KindOfDeadLetter],
) -> None:
    for batch in _batches(lake, key):
        for row in batch.to_pylist():
            if wanted.kind not in (None, row["kind"]) or wanted.field not in (None, row["field"]):
                continue
            name = (row["kind"], row["field"])
            if name not in kinds and len(kinds) >= KINDS_MAX:
                name = ("others", None)
            one = kinds.setdefault(name, KindOfDeadLetter(kind=name[0], field=name[1]))
            one.count += 1
            one.intervals[interval] = one.intervals.get(interval, 0) + 1
            if len(one.samples) < wanted.samples:
                one.samples.append(_letter(interval, row))


def _letter(interval: Interval, row: Mapping[str, Any]) -> DeadLetter:
    return DeadLetter(
        interval=interval,
        topic=row["_topic"],
        partition=row["_kafka_partition"],
        offset=row["_offset"],
        at=row["_timestamp"],
        key=row["key"],
        value=row["value"],
        headers=row["headers"],
        reason=row["reason"],
    )


def _batches(lake: Lake, key: str) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    stored = lake.store.get(key)
    if stored is None:
        raise Corrupt(
            f"{lake.where(key)} is gone, and table {DEAD_LETTERS} names it.",
            hint="run `tally verify`, which lists all objects that are missing.",
        )
    columns = [c.name for c in DEAD_LETTER_COLUMNS]
    try:
        file = pq.ParquetFile(pa.BufferReader(stored.body))
        if missing := sorted(set(columns) - set(file.schema_arrow.names)):
            raise InvalidRequest(
                f"{lake.where(key)}: expected the columns of dead letters, found none named {missing[0]!r}.",
                hint="replace that interval: its dead letters were written by an older version.",
            )
        yield from file.iter_batches(columns=columns)
    except (pa.ArrowException, OSError) as error:
        raise Corrupt(
            f"{lake.where(key)} cannot be read as Parquet: {str(error).splitlines()[0]}.",
            hint="restore it from a bucket version.",
        ) from error
