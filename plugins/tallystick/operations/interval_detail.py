"""The use case "interval": all that a lake has about one interval of its ledger.

Its account of every offset, its files, the commits that it replaced, its outputs, its lookback, and the run that has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from tallystick.errors import Corrupt, InvalidRequest
from tallystick.format import keys
from tallystick.format.claim import Claim
from tallystick.format.interval import Interval
from tallystick.format.outputs import OutputSlot
from tallystick.format.page import Entry, Granted
from tallystick.format.plan import Plan
from tallystick.format.record import Record
from tallystick.format.report import Report
from tallystick.lake import Lake, Snapshot
from tallystick.operations.status.timeline import TimelineCommit, with_reports

HISTORY_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantDetail:
    """The grant of an interval, its plan (None if it cannot be read), and its claim (None if no run stages it yet)."""

    granted: Granted
    plan: Plan | None
    claim: Claim | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalDetail:
    """One interval of a ledger.

    `history`: the commits of the interval, newest first, at most HISTORY_MAX; each has only this interval. `plan` and
    `report`: of the newest one; None if there is none or if gc has deleted it. `reports`: the keys of all reports in the
    interval, one of each attempt that staged it whole. `stale`: the earlier span that has changed since it was read.
    """

    uri: str
    pipeline: str
    version: int
    entry: Entry
    history: tuple[TimelineCommit, ...]
    plan: Plan | None
    report: Report | None
    grant: GrantDetail | None
    reports: tuple[keys.ReportKey, ...]
    stale: Interval | None

    @property
    def outputs(self) -> Mapping[str, OutputSlot]:
        """The slot of each output that the commits name."""
        return self.entry.outputs


def read_interval(lake: Lake, interval: Interval) -> IntervalDetail:
    """Return all about exactly this interval.

    Raises InvalidRequest if the ledger has no such interval, RootVanished if there is no root, Corrupt if an object is
    damaged.
    """
    return lake.read(lambda snapshot: _from_snapshot(lake, snapshot, interval))


def _from_snapshot(lake: Lake, snapshot: Snapshot, interval: Interval) -> IntervalDetail:
    entry = next((e for e in snapshot.around([interval]).entries if e.interval == interval), None)
    if entry is None:
        raise InvalidRequest(
            f"{lake.store.uri} has no interval {interval}.",
            hint="it may have been released or split since the page was loaded: load it again.",
        )
    committed = entry.committed
    report_key = None
    history = with_reports(lake, _records(lake, entry))
    if history:
        report_key = history[0].intervals[0].committed.report
    prefix = f"{keys.ATTEMPTS_PREFIX}{interval.part}/"
    return IntervalDetail(
        uri=lake.store.uri,
        pipeline=snapshot.root.pipeline,
        version=snapshot.root.version,
        entry=entry,
        history=history,
        plan=None if committed is None else _plan(lake, committed.plan),
        report=None if report_key is None else lake.report(report_key),
        grant=_grant(lake, entry),
        reports=tuple(sorted(keys.check_report(one.key) for one in lake.store.list(prefix))),
        stale=snapshot.stale_among([interval]).get(interval),
    )


def _records(lake: Lake, entry: Entry) -> list[Record]:
    """Return the records of the entry's commits, newest first, each with only this interval."""
    found: list[Record] = []
    key = entry.committed.record if entry.committed else None
    while key is not None and len(found) < HISTORY_MAX:
        record = lake.record(key)
        own = [c for c in record.intervals if c.interval == entry.interval] if record else []
        if record is None or not own:
            break
        found.append(replace(record, intervals=tuple(own)))
        older = own[0].replaces
        if older is not None and keys.record_version(older) >= record.version:
            break  # damaged: `tally verify` reports it
        key = older
    return found


def _grant(lake: Lake, entry: Entry) -> GrantDetail | None:
    if entry.granted is None:
        return None
    key = entry.granted.plan
    claim = None
    with suppress(Corrupt):
        found = lake.store.get(keys.claim(key))
        if found is not None:
            claim = Claim.decode(found.body, where=lake.where(keys.claim(key)))
    return GrantDetail(granted=entry.granted, plan=_plan(lake, key), claim=claim)


def _plan(lake: Lake, key: keys.PlanKey) -> Plan | None:
    with suppress(Corrupt):
        return lake.plan(key)
    return None
