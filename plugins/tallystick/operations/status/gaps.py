"""Finds the gaps of a ledger between its first and its last boundary, and the command that fills each gap.

The ledger does not contain the schedule. Its interval length is derived from the intervals of scheduled runs. If these
do not agree (the schedule changed, or daylight saving time began or ended), the command has the exact dates of the gap,
which do not depend on the schedule.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tallystick.format.interval import Interval
from tallystick.format.page import Entry
from tallystick.format.root import RootTopic
from tallystick.protocol import adoption
from tallystick.protocol.ledger import Ledger
from tallystick.protocol.planning import parts

# The run id prefixes of Airflow for scheduled and backfill runs. Both have whole intervals of the schedule.
_SCHEDULED = ("scheduled__", "backfill__")
# Enough to outvote a partial interval (another run had a part of it), few enough to follow a new schedule soon.
_LATEST = 5


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


def gaps(ledger: Ledger, topics: Mapping[str, RootTopic]) -> tuple[Gap, ...]:
    """Return the spans between the first and the last boundary that no entry covers, with the commands that fill them.

    A gap is split at an adoption: the part before it can only be filled as a loss.
    """
    instants = [b.at for b in ledger.boundaries]
    if not instants:
        return ()
    every = schedule_length(ledger.entries)
    spans: list[Interval] = []
    start = instants[0]
    for entry in ledger.entries:
        if entry.interval.start > start:
            spans.append(Interval(start=start, end=entry.interval.start))
        start = max(start, entry.interval.end)
    if start < instants[-1]:
        spans.append(Interval(start=start, end=instants[-1]))
    return tuple(
        _gap(
            part,
            ledger.entries,
            every,
            offsets=_offsets(ledger, topics, part),
            gone=_gone(ledger, topics, part),
        )
        for span in spans
        for part in parts(span, adoption.cuts(topics))
    )


def _offsets(ledger: Ledger, topics: Mapping[str, RootTopic], gap: Interval) -> int:
    """Return the number of offsets of all topics in a gap."""
    start, end = ledger.boundary(gap.start), ledger.boundary(gap.end)
    assert start is not None  # gaps lie between boundaries
    assert end is not None
    return sum(adoption.offsets_between(start, end, name, topic) for name, topic in topics.items())


def _gone(ledger: Ledger, topics: Mapping[str, RootTopic], gap: Interval) -> int:
    """Return the number of offsets of closed topics in a gap.

    The offsets that the adoption itself accepted as lost do not count: every run accepts them.
    """
    start, end = ledger.boundary(gap.start), ledger.boundary(gap.end)
    assert start is not None  # gaps lie between boundaries
    assert end is not None
    return sum(
        adoption.offsets_between(start, end, name, topic)
        for name, topic in topics.items()
        if topic.closed is not None and gap.start < topic.closed.since
    )


def schedule_length(entries: Iterable[Entry]) -> timedelta | None:
    """Return the length of the schedule's intervals; None if no scheduled run has an interval.

    It is the most common length among the latest few intervals, because the schedule may have changed. Of two equally
    common lengths it is the longer one, because some runs have only the rest of an interval that others had in part.
    """
    latest = sorted(_scheduled(entries))[-_LATEST:]
    lengths = Counter(_length(interval) for interval in latest)
    return max(lengths, key=lambda length: (lengths[length], length), default=None)


def _scheduled(entries: Iterable[Entry]) -> list[Interval]:
    return [e.interval for e in entries if _is_scheduled(e)]


def _is_scheduled(entry: Entry) -> bool:
    return any(
        s is not None and s.request.run.startswith(_SCHEDULED)
        for s in (entry.granted, entry.committed)
    )


def _length(interval: Interval) -> timedelta:
    return interval.end - interval.start


def _gap(
    interval: Interval,
    entries: Sequence[Entry],
    every: timedelta | None,
    *,
    offsets: int,
    gone: int,
) -> Gap:
    dag = _dag_near(interval, entries)
    whole = _whole_intervals(interval, entries, every)
    if dag is None:
        command: tuple[str, ...] = ()
    elif gone:
        command = trigger_command(dag, interval, accept_loss=True)
    elif whole is not None and every is not None:
        command = backfill_command(dag, interval.start, interval.end - every)
    else:
        command = trigger_command(dag, interval)
    return Gap(interval=interval, intervals=whole, command=command, offsets=offsets, gone=gone)


def _whole_intervals(
    interval: Interval, entries: Iterable[Entry], every: timedelta | None
) -> int | None:
    """Return the number of schedule intervals that fit exactly; schedules in local time have two phases in a year.

    Return None if the scheduled intervals before or after the gap, or the latest one, have another length. A backfill
    creates runs by the current schedule, and an old run that began at the same instant keeps its old interval.
    """
    if every is None or _length(interval) % every:
        return None
    scheduled = _scheduled(entries)
    witnesses = {
        max((i for i in scheduled if i.end <= interval.start), default=None),
        min((i for i in scheduled if i.start >= interval.end), default=None),
        max(scheduled, default=None),
    }
    if any(i is not None and _length(i) != every for i in witnesses):
        return None
    phases = {(i.start - interval.start) % every for i in scheduled if _length(i) == every}
    return _length(interval) // every if timedelta(0) in phases else None


def _dag_near(interval: Interval, entries: Iterable[Entry]) -> str | None:
    """Return the DAG of the nearest entry, scheduled runs first: more than one DAG may write to a lake."""
    near = min(
        entries,
        key=lambda e: (
            not _is_scheduled(e),
            min(abs(e.interval.end - interval.start), abs(e.interval.start - interval.end)),
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
