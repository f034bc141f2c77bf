"""Finds the gaps of a ledger between its first and its last boundary, and the command that fills each gap.

The ledger does not contain the schedule. Its interval length is derived from the intervals of scheduled runs. If these
do not agree (the schedule changed, or daylight saving time began or ended), the command has the exact dates of the gap,
which do not depend on the schedule.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from tallystick.format.interval import Interval
from tallystick.format.page import Boundary, Entry
from tallystick.format.root import RootTopic
from tallystick.protocol import adoption
from tallystick.protocol.planning import parts

# The run id prefixes of Airflow for scheduled and backfill runs. Both have whole intervals of the schedule.
_SCHEDULED = ("scheduled__", "backfill__")
# Enough to outvote a partial interval (another run had a part of it), few enough to follow a new schedule soon.
LATEST = 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A span between the first and the last boundary that no entry covers, and the command that fills it.

    `intervals`: the number of whole intervals of the schedule in it, None if it does not consist of whole ones.
    `command`: empty if no DAG is known. `offsets`: the number of offsets in it, of all topics. `gone`: those that belong
    to topics closed by an adoption; if there are any, the command accepts that loss.
    """

    interval: Interval
    intervals: int | None
    command: tuple[str, ...]
    offsets: int
    gone: int = 0


def gaps(ledger: BoundedLedger, topics: Mapping[str, RootTopic]) -> tuple[Gap, ...]:
    """Return the spans between the first and the last boundary that no entry covers, with the commands that fill them.

    A gap is split at an adoption: the part before it can only be filled as a loss.
    """
    if ledger.first is None or ledger.last is None:
        return ()
    schedule = _Schedule(ledger.entries)
    covered = (entry.interval for entry in ledger.entries)
    return tuple(
        _gap(ledger, topics, schedule, part)
        for span in uncovered(ledger.first.at, ledger.last.at, covered)
        for part in parts(span, adoption.cuts(topics))
    )


def uncovered(first: datetime, last: datetime, covered: Iterable[Interval]) -> Sequence[Interval]:
    """Return the spans from `first` to `last` that no interval covers. `covered` are sorted by start."""
    spans: list[Interval] = []
    start = first
    for interval in covered:
        if interval.start > start:
            spans.append(Interval(start=start, end=interval.start))
        start = max(start, interval.end)
    if start < last:
        spans.append(Interval(start=start, end=last))
    return spans


class BoundedLedger(Protocol):
    """The entries of a whole ledger, its first and last boundary, and any boundary between them."""

    @property
    def entries(self) -> Sequence[Entry]:
        """All entries, by start."""
        ...

    @property
    def first(self) -> Boundary | None:
        """The first boundary; None if there is none."""
        ...

    @property
    def last(self) -> Boundary | None:
        """The last boundary; None if there is none."""
        ...

    def boundary(self, at: datetime) -> Boundary | None:
        """Return the boundary at that instant, or None."""
        ...


def _gap(
    ledger: BoundedLedger, topics: Mapping[str, RootTopic], schedule: _Schedule, interval: Interval
) -> Gap:
    start, end = ledger.boundary(interval.start), ledger.boundary(interval.end)
    assert start is not None  # gaps lie between boundaries
    assert end is not None
    offsets = {
        name: adoption.offsets_between(start, end, name, topic) for name, topic in topics.items()
    }
    # The offsets that the adoption itself accepted as lost do not count: every run accepts them.
    gone = sum(
        offsets[name]
        for name, topic in topics.items()
        if topic.closed is not None and interval.start < topic.closed.since
    )
    dag, whole = schedule.dag_near(interval), schedule.whole_intervals(interval)
    if dag is None:
        command: tuple[str, ...] = ()
    elif gone:
        command = trigger_command(dag, interval, accept_loss=True)
    elif whole is not None and schedule.every is not None:
        command = backfill_command(dag, interval.start, interval.end - schedule.every)
    else:
        command = trigger_command(dag, interval)
    return Gap(
        interval=interval,
        intervals=whole,
        command=command,
        offsets=sum(offsets.values()),
        gone=gone,
    )


def schedule_length(entries: Iterable[Entry]) -> timedelta | None:
    """Return the length of the schedule's intervals; None if no scheduled run has an interval.

    It is the most common length among the latest few intervals, because the schedule may have changed. Of two equally
    common lengths it is the longer one, because some runs have only the rest of an interval that others had in part.
    """
    latest = sorted(_scheduled(entries))[-LATEST:]
    lengths = Counter(_length(interval) for interval in latest)
    return max(lengths, key=lambda length: (lengths[length], length), default=None)


def _scheduled(entries: Iterable[Entry]) -> list[Interval]:
    return [e.interval for e in entries if is_scheduled(e)]


def is_scheduled(entry: Entry) -> bool:
    """Return True if a run of the schedule, or of a backfill of it, has a grant or a commit of the entry."""
    return any(
        s is not None and s.request.run.startswith(_SCHEDULED)
        for s in (entry.granted, entry.committed)
    )


def _length(interval: Interval) -> timedelta:
    return interval.end - interval.start


class _Schedule:
    """The entries of a ledger by time, and those of scheduled runs; each answer takes a search, not a scan."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._all = entries
        self._scheduled = [e for e in entries if is_scheduled(e)]
        self._starts = [e.interval.start for e in self._scheduled]
        self.every = schedule_length(entries)
        # Schedules in local time have two phases in a year.
        self._phases = (
            {
                (e.interval.start - _EPOCH) % self.every
                for e in self._scheduled
                if _length(e.interval) == self.every
            }
            if self.every is not None
            else set()
        )

    def whole_intervals(self, gap: Interval) -> int | None:
        """Return the number of schedule intervals that fit exactly; None if they do not.

        Return None if the scheduled intervals before or after the gap, or the latest one, have another length. A backfill
        creates runs by the current schedule, and an old run that began at the same instant keeps its old interval.
        """
        every = self.every
        if every is None or _length(gap) % every:
            return None
        after = bisect_left(self._starts, gap.end)
        before = bisect_left(self._starts, gap.start)
        witnesses = (
            *self._scheduled[max(0, before - 1) : before],
            *self._scheduled[after : after + 1],
            *self._scheduled[-1:],
        )
        if any(_length(e.interval) != every for e in witnesses):
            return None
        return _length(gap) // every if (gap.start - _EPOCH) % every in self._phases else None

    def dag_near(self, gap: Interval) -> str | None:
        """Return the DAG of the nearest entry, scheduled runs first: more than one DAG may write to a lake."""
        among = self._scheduled or self._all
        after = bisect_left(among, gap.end, key=lambda e: e.interval.start)
        near = min(
            among[max(0, after - 1) : after + 1],
            key=lambda e: (
                gap.start - e.interval.end
                if e.interval.end <= gap.start
                else e.interval.start - gap.end
            ),
            default=None,
        )
        slot = (near.committed or near.granted) if near else None
        return slot.request.dag if slot else None


def backfill_command(dag: str, first: datetime, last: datetime) -> tuple[str, ...]:
    """Return the command that runs the intervals that begin at `first` to `last`, both inclusive, as logical dates.

    `--reprocess-behavior completed` is needed because Airflow by default skips a date that has a run already, even if
    that run failed or left a part to others.
    """
    return (
        *("airflow", "backfill", "create", "--dag-id", dag),
        *("--from-date", first.isoformat(), "--to-date", last.isoformat()),
        *("--reprocess-behavior", "completed"),
    )


def trigger_command(dag: str, interval: Interval, *, accept_loss: bool = False) -> tuple[str, ...]:
    """Return the command that runs exactly `interval`, independent of the schedule."""
    conf: dict[str, object] = {"from": _short(interval.start), "to": _short(interval.end)}
    if accept_loss:
        conf["accept_loss"] = True
    return ("airflow", "dags", "trigger", dag, "--conf", json.dumps(conf))


def _short(at: datetime) -> str:
    # Short, so that the JSON of --conf fits in 100 columns, even with accept_loss.
    return at.isoformat().replace("+00:00", "Z")
