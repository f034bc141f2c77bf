"""The use case `earlier`: find the lookback of a plan, the rows of earlier intervals that a job reads with its own.

Committed intervals are read from the data files of their current commits. Uncommitted time is read from Kafka, as offset
ranges. Each attempt finds its lookback anew, and its report records what it used (`tallystick.protocol.staleness`). A
plan does not freeze its lookback: if one of these intervals changes later, the plan's interval becomes stale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime

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
from tallystick.operations.kafka_log import KafkaLog
from tallystick.operations.row_places import FileRows, rows_of_commit, rows_of_report
from tallystick.operations.run_request import AHEAD_MAX, EPOCH
from tallystick.pipeline import Lookback
from tallystick.protocol import boundaries, planning
from tallystick.protocol.ledger import Ledger
from tallystick.protocol.staleness import lookback_used

# Each interval needs its record and its report, about 10 ms each on S3: one by one, a year of hours takes minutes.
READS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class UsableInterval:
    """An earlier interval with usable rows: committed, or staged by the same run. `files` has their places by table."""

    interval: Interval
    fingerprint: str
    records: int
    files: Mapping[str, tuple[FileRows, ...]]

    @property
    def seen(self) -> UsedInterval:
        """The interval as a report records it."""
        return UsedInterval(
            interval=self.interval, fingerprint=self.fingerprint, records=self.records
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusableInterval:
    """A committed earlier interval with unusable rows: its plan did not have the table or column `lacks`."""

    interval: Interval
    fingerprint: str
    records: int
    lacks: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UncommittedRange:
    """A span of earlier time to read from Kafka, with its offset ranges and the ledger's boundaries inside it.

    `instead_of`: the committed interval that it replaces, because the rows of that interval are unusable; None if the
    span is not committed.
    """

    span: LogSpan
    topics: tuple[PlannedTopic, ...]
    instead_of: UnusableInterval | None = None

    @property
    def interval(self) -> Interval:
        """The interval of the span."""
        return self.span.interval


@dataclass(frozen=True, slots=True, kw_only=True)
class LookbackInput:
    """The lookback of a plan: usable intervals and uncommitted ranges from `since` to the start of its interval."""

    since: datetime
    parts: tuple[UsableInterval, ...] = ()
    unread: tuple[UncommittedRange, ...] = ()

    def used(self, fingerprint: str, records: Mapping[Interval, int]) -> LookbackUsed:
        """Return the used lookback for the report. `records`: the number of records read of each span in `unread`.

        If a span was read from Kafka instead of a committed interval, the result has the fingerprint of that commit.
        Therefore the plan's interval becomes stale when the current code replaces that commit. Raises SchemaChanged if
        the number of records read differs from the number committed (compaction).
        """
        passed = {u.interval: u.instead_of for u in self.unread if u.instead_of is not None}
        for interval, one in passed.items():
            if records[interval] != one.records:
                raise _useless(
                    one, f"and Kafka has {records[interval]} of its {one.records} records"
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


def read_lookback(
    lake: Lake,
    plan: Plan,
    lookback: Lookback,
    *,
    staged: Sequence[tuple[Plan, Report]] = (),
    log: KafkaLog | None = None,
) -> LookbackInput:
    """Return the lookback of a plan: the earlier rows that its job reads.

    `staged`: plans of the same run that are staged and not committed yet; they count as committed. If `log` is None,
    uncommitted time is left out. Raises Corrupt if objects of a commit are gone. Raises SchemaChanged if an interval was
    committed without a table or column of the lookback, and cannot be read from Kafka instead. Raises the errors of the
    store and the log.
    """
    start = plan.interval.start
    since = EPOCH if lookback.back is None else max(EPOCH, start - lookback.back)
    if since == start:
        return LookbackInput(since=since)
    own = {p.key: (p, report) for p, report in staged}

    def from_snapshot(snapshot: Snapshot) -> LookbackInput:
        ledger = snapshot.ledger(since, start)
        span = Interval(start=since, end=start)
        with ThreadPoolExecutor(READS_AT_ONCE) as pool:
            overlapping = ledger.overlapping(span)
            read = pool.map(lambda entry: _part(lake, entry, own, plan, lookback), overlapping)
            found = [one for one in read if one is not None]
        passed = [one for one in found if isinstance(one, UnusableInterval)]
        unread: list[UncommittedRange] = []
        if log is not None and lookback.uncommitted == "kafka":
            cuts = _Cuts(ledger, snapshot.root, plan, log, latest=lake.runtime.now() + AHEAD_MAX)
            gaps = planning.gaps(span, [one.interval for one in found])
            unread = [one for gap in gaps if (one := cuts.unread(gap)) is not None]
            unread += [cuts.instead_of(one) for one in passed]
        elif passed:
            raise _useless(passed[0], "and is not read in Kafka")
        parts = tuple(one for one in found if isinstance(one, UsableInterval))
        return LookbackInput(since=since, parts=parts, unread=tuple(unread))

    return lake.read(from_snapshot)


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
        places = {name: rows_of_report(_files(report, name)) for name in lookback.tables}
        return _usable(entry.interval, staged.fingerprint, records, places)
    if committed is None:
        return None
    chain = lake.earlier_commits(entry)
    done = chain[0] if chain and chain[0].plan == committed.plan else None
    key = done.report if done is not None else None
    found = lake.report(key) if key is not None else None
    if found is None and (done is None or key is not None):
        raise Corrupt(
            f"{lake.where(key or committed.record)} is gone, and the lookback reads the rows of {entry.interval}.",
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
    places = {
        name: rows_of_commit(lake, entry, name, _files(found, name)) for name in lookback.tables
    }
    return _usable(entry.interval, committed.fingerprint, records, places)


def _files(report: Report | None, table: str) -> list[FileReport]:
    return [f for f in report.files if f.table == table] if report is not None else []


def _lacks(then: Plan | None, plan: Plan, lookback: Lookback) -> str | None:
    """Return the first table or column of the lookback that an earlier commit lacks; None if it has all.

    Without this check, its rows would be read as no rows.
    """
    for name in lookback.tables:
        current, before = plan.table(name), then.table(name) if then is not None else None
        assert current is not None  # the pipeline checked it
        if before is None:
            return f"table {name}"
        known = {c.id for c in before.columns}
        missing = [c.name for c in current.columns if c.id not in known]
        if missing:
            return f"column {missing[0]!r} of table {name}"
    return None


def _usable(
    interval: Interval,
    fingerprint: str,
    records: int,
    places: Mapping[str, tuple[FileRows, ...]],
) -> UsableInterval:
    files = {table: rows for table, rows in places.items() if rows}
    return UsableInterval(interval=interval, fingerprint=fingerprint, records=records, files=files)


class _Cuts:
    """The boundaries of a plan's topics: from the ledger, or looked up in Kafka if the ledger has none."""

    def __init__(
        self, ledger: Ledger, root: Root, plan: Plan, log: KafkaLog, *, latest: datetime
    ) -> None:
        # A copy: boundaries that are looked up here are not stored. The plan that is granted this time sets them.
        self._ledger, self._root, self._plan, self._log = ledger.copy(), root, plan, log
        self._latest_ms = round(latest.timestamp() * 1000)
        self._origins = {name: topic.origins for name, topic in root.topics.items()}
        self._log_starts: dict[str, Sequence[int]] = {}

    def unread(self, gap: Interval) -> UncommittedRange | None:
        """Return the ranges to read of a gap; None if it has offsets of a closed topic, which is read no more."""
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
        """Return the ranges to read instead of unusable rows. Raises SchemaChanged if Kafka no longer has all of them."""
        found = self.unread(passed.interval)
        if found is None or any(r.lost for t in found.topics for r in t.ranges):
            raise _useless(passed, "and Kafka no longer has its records")
        return replace(found, instead_of=passed)

    def _boundary(self, at: datetime) -> Boundary:
        there = self._ledger.boundary(at)
        if there is not None:
            return there
        floors = boundaries.floors(self._ledger, at, self._origins)
        found = {}
        for name, topic in self._root.topics.items():
            if topic.closed is not None:
                # A closed topic is not looked up: it keeps the position of the boundary before. If the gap up to the
                # next boundary has offsets of it, `unread` returns None.
                left, _ = self._ledger.neighbours(at)
                found[name] = tuple(
                    left.position(name, p, self._origins) if left else Position(offset=o)
                    for p, o in enumerate(topic.origins)
                )
                continue
            positions = self._log.boundary(
                keys.kafka_topic(name),
                round(at.timestamp() * 1000),
                floors[name],
                latest_ms=self._latest_ms,
            )
            found[name] = tuple(positions[: len(topic.origins)])
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
                    # The commit of that time will lack the offsets that the log has lost, too.
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
        f"the lookback reads {passed.interval}, which was committed without {passed.lacks}, {why}.",
        hint="replace it with the current job, and before it the intervals of its own lookback: mode=replace, "
        f"from={first} or earlier, to={last}.",
    )


def own_span(lake: Lake, plan: Plan) -> LogSpan:
    """Return a plan's own span of the log, with the boundaries inside it, which cancelled grants have left."""

    def from_snapshot(snapshot: Snapshot) -> LogSpan:
        interval = plan.interval
        ledger = snapshot.ledger(interval.start, interval.end)
        return span_of(interval, ledger.boundaries, plan, snapshot.root)

    return lake.read(from_snapshot)


def span_of(interval: Interval, boundaries: Sequence[Boundary], plan: Plan, root: Root) -> LogSpan:
    """Return a span of the log of a plan's topics, with the offsets of each boundary inside the interval."""
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
