"""The use case `earlier`: what a job sees of the time before its interval, where its pipeline looks back.

Of what is committed, the data files of the commits that stand now; of what is not, the offsets to be read in Kafka. Each
attempt looks for itself, and its report says what it saw (`tallystick.protocol.lookback`): nothing is frozen, and what
changes afterwards makes the interval stale, never silently wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from tallystick.engine.clock import LogPart, LogSpan
from tallystick.errors import Corrupt, SchemaChanged
from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.format.lookback import LookbackUsed, UsedInterval
from tallystick.format.offsets import Position
from tallystick.format.page import Boundary, Entry
from tallystick.format.plan import Plan, PlannedRange, PlannedTopic
from tallystick.format.report import FileReport, Report, account_totals
from tallystick.format.root import Root
from tallystick.lake import Lake, Snapshot
from tallystick.operations.run_request import AHEAD_MAX, EPOCH
from tallystick.pipeline import Lookback
from tallystick.protocol import boundaries, planning
from tallystick.protocol.ledger import Ledger
from tallystick.protocol.staleness import lookback_used

# A record and a report of each interval are read, some 10 ms each on S3: a year of hours would take minutes in a row.
READS_AT_ONCE = 16


class KafkaLog(Protocol):
    """What looking back asks of Kafka. tallystick.kafka.planning is the real one."""

    def boundary(
        self, topic: str, at_ms: int, floors: Sequence[int], *, latest_ms: int
    ) -> Sequence[Position]:
        """Where each partition splits at an instant, from `floors` on, passing over records after `latest_ms`."""
        ...

    def log_starts(self, topic: str) -> Sequence[int]:
        """The first offset that each partition still has."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UsableInterval:
    """One earlier interval whose rows are there: committed, or staged by this very run. `files` by table."""

    interval: Interval
    fingerprint: str
    records: int
    files: Mapping[str, tuple[FileReport, ...]]

    @property
    def seen(self) -> UsedInterval:
        """What a report says of it."""
        return UsedInterval(
            interval=self.interval, fingerprint=self.fingerprint, records=self.records
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusableInterval:
    """One earlier interval that was committed before the tables were what they are: its rows cannot be used."""

    interval: Interval
    fingerprint: str
    records: int
    lacks: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UncommittedRange:
    """Earlier time that is not committed, the ranges to be read of it, and how the ledger cuts it.

    `instead_of`: it is committed, and cannot be used.
    """

    span: LogSpan
    topics: tuple[PlannedTopic, ...]
    instead_of: UnusableInterval | None = None

    @property
    def interval(self) -> Interval:
        """Its time."""
        return self.span.interval


@dataclass(frozen=True, slots=True, kw_only=True)
class LookbackInput:
    """All that is to be seen of the time from `since` to a plan's interval."""

    since: datetime
    parts: tuple[UsableInterval, ...] = ()
    unread: tuple[UncommittedRange, ...] = ()

    def used(self, fingerprint: str, records: Mapping[Interval, int]) -> LookbackUsed:
        """What the report says was seen; `records`: how many were read of each stretch.

        Of what was read although it is committed it names the code that committed it: once that is replaced by this code,
        it is looked at again. Raises SchemaChanged where Kafka gave fewer of it than were committed (compaction).
        """
        passed = {u.interval: u.instead_of for u in self.unread if u.instead_of is not None}
        for interval, one in passed.items():
            if records[interval] != one.records:
                raise _useless(
                    one, f"and Kafka holds {records[interval]} of its {one.records} records"
                )
        read = [
            UsedInterval(
                interval=i,
                fingerprint=passed[i].fingerprint if i in passed else fingerprint,
                records=passed[i].records if i in passed else n,
            )
            for i, n in records.items()
        ]
        return lookback_used(self.since, [p.seen for p in self.parts], read)


def earlier(
    lake: Lake,
    plan: Plan,
    lookback: Lookback,
    *,
    staged: Sequence[tuple[Plan, Report]] = (),
    log: KafkaLog | None = None,
) -> LookbackInput:
    """Say what a job sees of the time before its plan's interval.

    `staged`: what this run has staged of it and not committed yet; it is taken as if it were. `log` None: what is not
    committed is left out. Raises Corrupt where a commit's objects are gone, and what the store and the log raise.
    """
    start = plan.interval.start
    since = EPOCH if lookback.back is None else max(EPOCH, start - lookback.back)
    if since == start:
        return LookbackInput(since=since)
    own = {p.key: (p, report) for p, report in staged}

    def question(snapshot: Snapshot) -> LookbackInput:
        ledger = snapshot.ledger(since, start)
        wanted = Interval(start=since, end=start)
        with ThreadPoolExecutor(READS_AT_ONCE) as pool:
            overlapping = ledger.overlapping(wanted)
            read = pool.map(lambda entry: _part(lake, entry, own, plan, lookback), overlapping)
            found = [one for one in read if one is not None]
        passed = [one for one in found if isinstance(one, UnusableInterval)]
        unread: list[UncommittedRange] = []
        if log is not None and lookback.uncommitted == "kafka":
            cuts = _Cuts(ledger, snapshot.root, plan, log, latest=lake.runtime.now() + AHEAD_MAX)
            gaps = planning.gaps(wanted, [one.interval for one in found])
            unread = [one for gap in gaps if (one := cuts.unread(gap)) is not None]
            unread += [cuts.instead_of(one) for one in passed]
        elif passed:
            raise _useless(passed[0], "and is not read in Kafka")
        parts = tuple(one for one in found if isinstance(one, UsableInterval))
        return LookbackInput(since=since, parts=parts, unread=tuple(unread))

    return lake.read(question)


def _part(
    lake: Lake,
    entry: Entry,
    own: Mapping[keys.PlanKey, tuple[Plan, Report]],
    plan: Plan,
    lookback: Lookback,
) -> UsableInterval | UnusableInterval | None:
    granted, committed = entry.granted, entry.committed
    if granted is not None and granted.plan in own:
        staged, report = own[granted.plan]
        records = account_totals(report.accounts)["records"]
        return _of_report(entry.interval, staged.fingerprint, records, report)
    if committed is None:
        return None
    chain = lake.earlier_commits(entry)
    done = chain[0] if chain and chain[0].plan == committed.plan else None
    key = done.report if done is not None else None
    found = lake.report(key) if key is not None else None
    if found is None and (done is None or key is not None):
        raise Corrupt(
            f"{lake.where(key or committed.record)} is gone, and the rows of {entry.interval} are looked back at.",
            hint="restore it from a bucket version, or replace that interval (mode=replace).",
        )
    records = committed.totals.records
    if records and (lacks := _lacks(lake.plan(committed.plan), plan, lookback)) is not None:
        return UnusableInterval(
            interval=entry.interval,
            fingerprint=committed.fingerprint,
            records=records,
            lacks=lacks,
        )
    return _of_report(entry.interval, committed.fingerprint, records, found)


def _lacks(then: Plan | None, plan: Plan, lookback: Lookback) -> str | None:
    """What an earlier commit lacks of the tables that are looked back at: its rows would be seen as none."""
    for name in lookback.tables:
        wanted, there = plan.table(name), then.table(name) if then is not None else None
        assert wanted is not None  # the pipeline checked it
        if there is None:
            return f"table {name}"
        known = {c.id for c in there.columns}
        missing = [c.name for c in wanted.columns if c.id not in known]
        if missing:
            return f"column {missing[0]!r} of table {name}"
    return None


def _of_report(
    interval: Interval, fingerprint: str, records: int, report: Report | None
) -> UsableInterval:
    files: dict[str, tuple[FileReport, ...]] = {}
    for file in report.files if report is not None else ():
        files[file.table] = (*files.get(file.table, ()), file)
    return UsableInterval(interval=interval, fingerprint=fingerprint, records=records, files=files)


class _Cuts:
    """Where the log of a plan's topics splits by time: as the ledger says, else as Kafka does now."""

    def __init__(
        self, ledger: Ledger, root: Root, plan: Plan, log: KafkaLog, *, latest: datetime
    ) -> None:
        # What is looked up here stands in no ledger: the plan that commits this time sets its boundaries for good.
        self._ledger, self._root, self._plan, self._log = ledger.copy(), root, plan, log
        self._latest_ms = round(latest.timestamp() * 1000)
        self._origins = {name: topic.origins for name, topic in root.topics.items()}
        self._log_starts: dict[str, Sequence[int]] = {}

    def unread(self, gap: Interval) -> UncommittedRange | None:
        """What is to be read of a gap; None where some of it lies in a topic that can be read no more."""
        first, last = (self._boundary(at) for at in (gap.start, gap.end))
        for name, topic in self._root.topics.items():
            if topic.closed is not None and self._offsets(first, name) != self._offsets(last, name):
                return None
        readable = [t for t in self._plan.topics if self._root.topics[t.name].closed is None]
        return UncommittedRange(
            span=span_of(gap, self._ledger.boundaries, self._plan, self._root),
            topics=tuple(self._topic(t, first, last) for t in readable),
        )

    def instead_of(self, passed: UnusableInterval) -> UncommittedRange:
        """What is to be read in place of rows that cannot be used. Raises SchemaChanged where it is not all there."""
        found = self.unread(passed.interval)
        if found is None or any(r.lost for t in found.topics for r in t.ranges):
            raise _useless(passed, "and Kafka no longer holds it")
        return replace(found, instead_of=passed)

    def _boundary(self, at: datetime) -> Boundary:
        there = self._ledger.boundary(at)
        if there is not None:
            return there
        floors = boundaries.floors(self._ledger, at, self._origins)
        found = {}
        for name, topic in self._root.topics.items():
            if topic.closed is not None:
                # It ends before the ledger's next boundary, or is read from it: never looked up again.
                left, _ = self._ledger.neighbours(at)
                found[name] = tuple(
                    left.position(name, p, self._origins) if left else Position(offset=o)
                    for p, o in enumerate(topic.origins)
                )
                continue
            asked = self._log.boundary(
                keys.kafka_topic(name),
                round(at.timestamp() * 1000),
                floors[name],
                latest_ms=self._latest_ms,
            )
            found[name] = tuple(asked[: len(topic.origins)])
        boundary = boundaries.clamped(self._ledger, at, found, self._origins)
        self._ledger.set_boundary(boundary)
        return boundary

    def _offsets(self, boundary: Boundary, name: str) -> tuple[int, ...]:
        return tuple(
            boundary.position(name, p, self._origins).offset
            for p in range(len(self._origins[name]))
        )

    def _topic(self, planned: PlannedTopic, first: Boundary, last: Boundary) -> PlannedTopic:
        starts = self._starts(keys.kafka_topic(planned.name))
        ranges = []
        for p in range(len(self._origins[planned.name])):
            start, end = (b.position(planned.name, p, self._origins) for b in (first, last))
            ranges.append(
                PlannedRange(
                    start=start.offset,
                    end=end.offset,
                    start_epoch=start.leader_epoch,
                    end_epoch=end.leader_epoch,
                    # What the log has lost, the commit of that time will not have either.
                    readable_from=min(max(start.offset, starts[p]), end.offset),
                )
            )
        return replace(planned, ranges=tuple(ranges))

    def _starts(self, topic: str) -> Sequence[int]:
        if topic not in self._log_starts:
            self._log_starts[topic] = self._log.log_starts(topic)
        return self._log_starts[topic]


def _useless(passed: UnusableInterval, why: str) -> SchemaChanged:
    first, last = (keys.instant(at) for at in (passed.interval.start, passed.interval.end))
    return SchemaChanged(
        f"{passed.interval} is looked back at and was committed without {passed.lacks}, {why}.",
        hint="replace it by the job of now, and before it what it looks back at itself: mode=replace, "
        f"from={first} or earlier, to={last}.",
    )


def own_span(lake: Lake, plan: Plan) -> LogSpan:
    """A plan's own stretch of the log, with the boundaries inside it: those of grants that were cancelled."""

    def question(snapshot: Snapshot) -> LogSpan:
        interval = plan.interval
        ledger = snapshot.ledger(interval.start, interval.end)
        return span_of(interval, ledger.boundaries, plan, snapshot.root)

    return lake.read(question)


def span_of(interval: Interval, boundaries: Sequence[Boundary], plan: Plan, root: Root) -> LogSpan:
    """A stretch of the log of a plan's topics, cut at those boundaries that lie inside it."""
    origins = {name: topic.origins for name, topic in root.topics.items()}
    names = plan.read_names
    return LogSpan(
        interval=interval,
        inside=tuple(
            LogPart(
                start=b.at,
                offsets={
                    topic: tuple(
                        b.position(name, p, origins).offset for p in range(len(origins[name]))
                    )
                    for topic, name in names.items()
                },
            )
            for b in sorted(boundaries, key=lambda one: one.at)
            if interval.start < b.at < interval.end
        ),
    )
