"""A lake of any number of intervals and topics, written at once: its root, ledger pages, last plans, reports and records.

Reading commands and pages read it as a lake that grew for years. It has no data files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count

from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.format.offsets import Position
from tallystick.format.outputs import OutputSlot
from tallystick.format.page import PAGE_BYTES_MAX, Boundary, Committed, Entry, Granted, Totals
from tallystick.format.plan import Plan
from tallystick.format.record import CommittedInterval, Record
from tallystick.format.report import RangeAccount
from tallystick.format.root import Root, RootTopic
from tallystick.lake import Lake
from tallystick.protocol.ledger import Ledger
from tallystick.runtime import system_runtime
from tallystick.store import Store

START = datetime(2025, 1, 1, tzinfo=UTC)
FINGERPRINT = "f" * 64
GAP_EVERY, REPLACED_EVERY, DEAD_EVERY, PENDING_EVERY = 501, 7, 11, 97


@dataclass(frozen=True, kw_only=True)
class LargeLake:
    """The size of a lake. Every interval of `every` has `records` offsets in each partition of each topic."""

    intervals: int
    topics: int = 1
    partitions: int = 1
    every: timedelta = timedelta(hours=1)
    records: int = 100
    commits: int = 50
    granted: int = 3
    gap_every: int = GAP_EVERY
    page_bytes_max: int = PAGE_BYTES_MAX
    pipeline: str = "large"
    dag: str = "large"

    def write(self, store: Store) -> Lake:
        """Write the lake. The last `granted` intervals are granted, the `commits` before them have their records."""
        uuids = (f"{number:032x}" for number in count(1))
        ledger = Ledger((), {})
        for number in range(self.intervals + 1):
            ledger.set_boundary(self._boundary(number))
        entries = list(self._entries(uuids))
        for entry in entries:
            ledger.put(entry)
        refs, pages = ledger.flush(uuids, bytes_max=self.page_bytes_max)
        for key, page in pages.items():
            store.create(key, page.encode())
        committed = [e for e in entries if e.committed is not None][-self.commits :]
        for entry in entries:
            if entry.granted is not None:
                self._write_plan(store, entry)
        parent: keys.RecordKey | None = None
        for entry in committed:
            self._write_plan(store, entry)
            record = self._record(entry, parent)
            store.create(record.key, record.encode())
            parent = record.key
        root = Root(
            pipeline=self.pipeline,
            version=self.intervals + self.granted,
            id=next(uuids),
            record=parent,
            tables={},
            pages=refs,
            topics={
                name: RootTopic(topic_id=f"id-{name}", cluster_id="cluster", origins=origins)
                for name, origins in self._origins().items()
            },
            outputs={"warehouse": "postgres://warehouse/large"},
            pending=tuple(ref.key for ref in refs if pages[ref.key].pending),
            uri=store.uri,
        )
        store.create(keys.ROOT, root.encode())
        return Lake(store, system_runtime(), proven=True)

    def _origins(self) -> dict[str, tuple[int, ...]]:
        return {f"topic-{n:03d}": (0,) * self.partitions for n in range(self.topics)}

    def _at(self, number: int) -> datetime:
        return START + number * self.every

    def _boundary(self, number: int) -> Boundary:
        here = Position(offset=number * self.records, leader_epoch=0)
        positions = {name: (here,) * self.partitions for name in self._origins()}
        return Boundary(at=self._at(number), positions=positions)

    def _entries(self, uuids: Iterator[str]) -> Iterator[Entry]:
        for number in range(self.intervals):
            if number % self.gap_every == self.gap_every - 1:
                continue
            interval = Interval(start=self._at(number), end=self._at(number + 1))
            request = Request(dag=self.dag, run=f"scheduled__{interval.end.isoformat()}", clear=0)
            plan = keys.plan(interval.start, interval.end, next(uuids))
            if number >= self.intervals - self.granted:
                granted = Granted(plan=plan, request=request, generation=1)
                yield Entry(interval=interval, generation=1, granted=granted, committed=None)
                continue
            generation = 2 if number % REPLACED_EVERY == 0 else 1
            offsets = self.records * self.topics * self.partitions
            dead = 3 if number % DEAD_EVERY == 0 else 0
            committed = Committed(
                plan=plan,
                request=request,
                generation=generation,
                fingerprint=FINGERPRINT,
                record=keys.record(number + 2, next(uuids)),
                totals=Totals(records=offsets - dead, dead_letters=dead),
            )
            uuid = keys.plan_parts(plan)[1]
            published = None if number % PENDING_EVERY == PENDING_EVERY - 1 else uuid
            yield Entry(
                interval=interval,
                generation=generation,
                granted=None,
                committed=committed,
                outputs={"warehouse": OutputSlot(wanted=uuid, published=published)},
            )

    def _write_plan(self, store: Store, entry: Entry) -> None:
        slot = entry.committed or entry.granted
        assert slot is not None
        plan = Plan(
            key=slot.plan,
            pipeline=self.pipeline,
            interval=entry.interval,
            generation=slot.generation,
            request=slot.request,
            fingerprint=FINGERPRINT,
            replaces=None,
            topics=(),
            tables=(),
            spec={"kafka": "default"},
            accept_loss=False,
            accept_compaction=False,
            planned_at=entry.interval.end + timedelta(minutes=1),
            library="0.1.0",
        )
        store.create(plan.key, plan.encode())

    def _record(self, entry: Entry, parent: keys.RecordKey | None) -> Record:
        committed = entry.committed
        assert committed is not None
        one = CommittedInterval(
            interval=entry.interval,
            plan=committed.plan,
            report=None,
            request=committed.request,
            generation=committed.generation,
            fingerprint=committed.fingerprint,
            replaces=None,
            totals=committed.totals,
            accounts=tuple(self._accounts(entry)),
            added={},
            dropped={},
        )
        return Record(
            key=committed.record,
            version=keys.record_version(committed.record),
            root_id=keys.plan_parts(committed.plan)[1],
            parent=parent,
            committed_at=entry.interval.end + timedelta(minutes=3),
            library="0.1.0",
            intervals=(one,),
            tables={},
            pages=(),
        )

    def _accounts(self, entry: Entry) -> Iterator[RangeAccount]:
        assert entry.committed is not None
        start = round((entry.interval.start - START) / self.every) * self.records
        dead = entry.committed.totals.dead_letters
        for topic in self._origins():
            for partition in range(self.partitions):
                yield RangeAccount(
                    topic=topic,
                    partition=partition,
                    start=start,
                    end=start + self.records,
                    records=self.records - dead,
                    dead_letters=dead,
                )
                dead = 0
