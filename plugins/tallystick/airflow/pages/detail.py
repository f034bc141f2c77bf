"""The JSON form of one interval: its accounts, files, commits, grant, outputs and lookback."""

from __future__ import annotations

from datetime import UTC, datetime

from tallystick.airflow.pages.answers import Form, commit, instant, run, span, tables, totals
from tallystick.format import keys
from tallystick.format.lookback import LookbackUsed
from tallystick.format.page import TOTALS, Totals
from tallystick.format.plan import Plan
from tallystick.format.report import RangeAccount, Report
from tallystick.operations.interval_detail import GrantDetail, IntervalDetail
from tallystick.operations.status.timeline import rows_by_table

FILES_MAX = 500


def interval(of: IntervalDetail) -> Form:
    """Return all about one interval."""
    entry = of.entry
    newest = of.history[0].intervals[0].committed if of.history else None
    return {
        **span(entry.interval),
        "pipeline": of.pipeline,
        "version": of.version,
        "generation": entry.generation,
        "committed": None
        if entry.committed is None
        else {
            **run(entry.committed.request),
            "generation": entry.committed.generation,
            "fingerprint": entry.committed.fingerprint,
            "plan": entry.committed.plan,
            "record": entry.committed.record,
            "totals": totals(entry.committed.totals),
            "accounts": [] if newest is None else [_account(one) for one in newest.accounts],
            "accepted": _accepted(of.plan),
            "lookback": _lookback(entry.committed.lookback),
        },
        "report": _report(of.report),
        "grant": _grant(of.grant),
        "history": [commit(one) for one in of.history],
        "attempts": [_attempt(key) for key in of.reports],
        "outputs": {
            name: {
                "pending": slot.pending,
                "in_progress": slot.in_progress is not None,
                "published": slot.published == slot.wanted,
            }
            for name, slot in of.outputs.items()
        },
        "stale": None if of.stale is None else span(of.stale),
    }


def _account(of: RangeAccount) -> Form:
    counts = Totals(**{name: getattr(of, name) for name in TOTALS})
    return {
        "topic": of.topic,
        "partition": of.partition,
        "start": of.start,
        "end": of.end,
        **totals(counts),
    }


def _accepted(of: Plan | None) -> list[str]:
    """Return what the run accepted when it was planned."""
    names = ("accept_loss", "accept_compaction", "accept_dead_letters")
    return [] if of is None else [name for name in names if getattr(of, name)]


def _lookback(of: LookbackUsed | None) -> Form | None:
    if of is None:
        return None
    return {
        "since": instant(of.since),
        "seen": [{**span(one.interval), "records": one.records} for one in of.seen],
    }


def _report(of: Report | None) -> Form | None:
    if of is None:
        return None
    return {
        "key": of.key,
        "attempt": of.attempt,
        "library": of.library,
        "tables": tables(rows_by_table(of.files)),
        "files": [
            {"table": f.table, "key": f.key, "rows": f.rows, "bytes": f.size_bytes}
            for f in of.files[:FILES_MAX]
        ],
        "files_left_out": max(0, len(of.files) - FILES_MAX),
    }


def _grant(of: GrantDetail | None) -> Form | None:
    if of is None:
        return None
    claim = of.claim
    return {
        **run(of.granted.request),
        "generation": of.granted.generation,
        "plan": of.granted.plan,
        "planned_at": None if of.plan is None else instant(of.plan.planned_at),
        "offsets": None
        if of.plan is None
        else sum(r.span.length for topic in of.plan.topics for r in topic.ranges),
        "staged_by": None
        if claim is None
        else {**run(claim.request), "attempt": claim.attempt, "until": instant(claim.until)},
    }


def _attempt(key: keys.ReportKey) -> Form:
    """Return an attempt that staged the interval whole. Airflow's ids of tries contain their time (UUID version 7)."""
    name = key.rpartition("/")[2].removesuffix(".json").rpartition("-")[0]
    return {"attempt": name, "report": key, "began_at": instant(_time_of(name))}


def _time_of(attempt: str) -> datetime | None:
    digits = attempt.replace("-", "")
    if len(digits) != 32 or digits[12] != "7":
        return None
    try:
        return datetime.fromtimestamp(int(digits[:12], 16) / 1000, tz=UTC).replace(microsecond=0)
    except (ValueError, OverflowError, OSError):
        return None
