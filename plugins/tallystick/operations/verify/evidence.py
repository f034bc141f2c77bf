"""Reads the objects that one root reaches. A missing or unreadable object is a finding; the verification continues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from tallystick.errors import Corrupt
from tallystick.format.compaction import Compaction, SharedFile
from tallystick.format.interval import Interval
from tallystick.format.page import Committed, Entry, Page, PageRef
from tallystick.format.plan import Plan
from tallystick.format.record import CommittedInterval, Record
from tallystick.format.report import Report
from tallystick.format.root import Root
from tallystick.lake import Lake, Snapshot
from tallystick.operations.verify.proof import Checks, Watch
from tallystick.store import Listed

if TYPE_CHECKING:
    from tallystick.tables.row_order import RowPlaces

T = TypeVar("T")
R = TypeVar("R")
READERS = 8
BATCH = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """The reason why an object could not be read."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """All stored objects of one committed interval.

    None means that the object could not be read, which is already a finding. `report` is also None if there is none.
    """

    entry: Entry
    committed: Committed
    record: CommittedInterval | None
    plan: Plan | None
    report: Report | None

    @property
    def where(self) -> str:
        """The interval as text, for messages."""
        return str(self.entry.interval)


class Evidence:
    """One root, a listing of the whole lake, and methods that read the other objects."""

    def __init__(self, lake: Lake, snapshot: Snapshot, checks: Checks, watch: Watch) -> None:
        self.lake, self.checks, self.watch = lake, checks, watch
        self.root: Root = snapshot.root
        # The listing follows the read of the root: all that the root reaches was written before it (S3 lists are
        # consistent).
        self.listed: dict[str, Listed] = {}
        for number, listed in enumerate(lake.store.list("")):
            self.listed[listed.key] = listed
            if number % 1000 == 0:
                watch("listing", number, 0)

    def in_parallel(
        self, read: Callable[[T], R], items: Iterable[T], what: str, total: int
    ) -> Iterator[R]:
        """Yield read(item) for each item, in order. Read in batches, because a lake may have 100,000 intervals."""
        done = 0
        rest = iter(items)
        pool = ThreadPoolExecutor(READERS)
        try:
            while batch := list(islice(rest, BATCH)):
                for value in pool.map(read, batch):
                    yield value
                    done += 1
                    self.watch(what, done, total)
        finally:
            pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C: do not read on

    def page(self, ref: PageRef) -> Page | Unreadable:
        """Read a ledger page."""
        found = self.lake.store.get(ref.key)
        if found is None:
            return Unreadable(why="it does not exist")
        return _or_why(lambda: Page.decode(found.body, where=self.lake.where(ref.key)))

    def record(self, key: str) -> Record | Unreadable:
        """Read a commit record."""
        return _or_why(lambda: self.lake.record(key))

    def plan(self, key: str) -> Plan | Unreadable:
        """Read a plan."""
        return _or_why(lambda: self.lake.plan(key))

    def report(self, key: str) -> Report | Unreadable:
        """Read a report."""
        return _or_why(lambda: self.lake.report(key))

    def compaction(self, key: str) -> Compaction | Unreadable:
        """Read a compaction."""
        return _or_why(lambda: self.lake.compaction(key))

    def row_places(self, shared: SharedFile) -> RowPlaces | Unreadable:
        """Read where the rows of a shared file are."""
        # Imported here, because only sorted files need Arrow.
        from tallystick.tables.row_order import read_places

        return _or_why(lambda: read_places(self.lake.store, shared))

    def take(self, value: T | Unreadable, key: str, what: str) -> T | None:
        """Count an object that was read and return it. If it could not be read, record a finding (I3) and return None."""
        if isinstance(value, Unreadable):
            self.unreadable(key, what, value)
            return None
        self.checks["objects"].count(what)
        return value

    def unreadable(self, key: str, what: str, because: Unreadable) -> None:
        """Record a finding: an object that the root reaches cannot be read."""
        self.checks["objects"].found(
            "I3",
            key,
            f"the {what} cannot be read",
            expected=f"a readable {what}",
            found=because.why,
        )

    def cases(self, entries: Iterable[Entry]) -> Iterator[Case]:
        """Yield the case of each committed entry, in order."""
        committed = [(e, e.committed) for e in entries if e.committed is not None]
        for case, problems in self.in_parallel(self._case, committed, "intervals", len(committed)):
            for key, what, because in problems:
                self.unreadable(key, what, because)
            objects = self.checks["objects"]
            objects.count("plan", case.plan is not None)
            objects.count("report", case.report is not None)
            yield case

    def _case(
        self, pair: tuple[Entry, Committed]
    ) -> tuple[Case, list[tuple[str, str, Unreadable]]]:
        entry, committed = pair
        problems: list[tuple[str, str, Unreadable]] = []
        record = self.record(committed.record)
        inside: CommittedInterval | None = None
        report: Report | Unreadable | None = None
        if isinstance(record, Record):  # an unreadable record is a finding of the chain check
            inside = _inside(record, entry.interval)
        if inside is not None and inside.report is not None:
            report = self.report(inside.report)
            if isinstance(report, Unreadable):
                problems.append((inside.report, "report", report))
        plan = self.plan(committed.plan)
        if isinstance(plan, Unreadable):
            problems.append((committed.plan, "plan", plan))
        case = Case(
            entry=entry,
            committed=committed,
            record=inside,
            plan=plan if isinstance(plan, Plan) else None,
            report=report if isinstance(report, Report) else None,
        )
        return case, problems


def _inside(record: Record, interval: Interval) -> CommittedInterval | None:
    return next((c for c in record.intervals if c.interval == interval), None)


def _or_why(read: Callable[[], T | None]) -> T | Unreadable:
    try:
        found = read()
    except Corrupt as error:
        return Unreadable(why=error.message)
    return Unreadable(why="it does not exist") if found is None else found
