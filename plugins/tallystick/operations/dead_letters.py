"""The use case `tally dead-letters`: count the dead letters of a lake by kind and field, with a few of them as samples.

Only the files of the table `dead_letters` are read, one in memory at a time, and only those of the requested time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tallystick.errors import Corrupt, InvalidRequest
from tallystick.format.interval import Interval
from tallystick.format.page import Entry
from tallystick.lake import Lake, Snapshot
from tallystick.operations.row_places import FileRows, places_of, rows_by_interval
from tallystick.operations.status.outline import StatusCache
from tallystick.pipeline import DEAD_LETTER_COLUMNS, DEAD_LETTERS

if TYPE_CHECKING:
    import pyarrow as pa

Watch = Callable[[str, int, int], None]
# Kinds come from decoders, and a column name is part of each. If there are more than this, the rest is counted together.
KINDS_MAX = 500
ROWS_AT_ONCE = 8192


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
        files = _files(lake, table.metadata, with_dead)
        read = _LastFile(lake)
        for number, (interval, rows) in enumerate(files):
            if watch is not None:
                watch("dead letters", number, len(files))
            _count(interval, read.rows(rows), wanted, kinds)
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


def _files(lake: Lake, metadata: str, wanted: Sequence[Entry]) -> list[tuple[Interval, FileRows]]:
    """Return where the dead letters of these entries are, with their interval, by time."""
    # Imported here, because the import of PyIceberg takes a third of a second.
    from tallystick.tables.reading import live_files

    live = {
        f.key: FileRows(key=f.key, etag="", first=0, rows=f.rows)
        for f in live_files(lake.store, metadata)
    }
    return rows_by_interval(lake, DEAD_LETTERS, live, wanted)


def _count(
    interval: Interval,
    letters: pa.Table,
    wanted: WantedLetters,
    kinds: dict[tuple[str, str | None], KindOfDeadLetter],
) -> None:
    for batch in letters.to_batches(max_chunksize=ROWS_AT_ONCE):
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


class _LastFile:
    """The last dead-letter file that was read: the rows of several intervals may be in one shared file."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._held: tuple[str, pa.Table] | None = None

    def rows(self, wanted: FileRows) -> pa.Table:
        """Return some rows of a file."""
        if self._held is None or self._held[0] != wanted.key:
            letters = _read_letters(self._lake, wanted.key)
            places = places_of(self._lake.store, wanted)
            self._held = (wanted.key, places.numbered(letters))
        return self._held[1].slice(wanted.first, wanted.rows)


def _read_letters(lake: Lake, key: str) -> pa.Table:
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
        return file.read(columns=columns)
    except (pa.ArrowException, OSError) as error:
        raise Corrupt(
            f"{lake.where(key)} cannot be read as Parquet: {str(error).splitlines()[0]}.",
            hint="restore it from a bucket version.",
        ) from error
