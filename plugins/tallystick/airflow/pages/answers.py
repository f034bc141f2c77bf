"""The JSON forms of the pages: the state of a lake, its lag, its commits, a comparison, its dead letters.

Instants are `2013-01-01T00:00:00.000Z`, lengths are seconds. The intervals of a status are columns, because there are
thousands of them: lists of the same length, times in milliseconds since 1970.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tallystick.airflow.pages.access import DagLake
from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.format.page import TOTALS, Totals
from tallystick.operations.compare import Comparison
from tallystick.operations.dead_letters import DeadLetter, DeadLetters
from tallystick.operations.lag import Lag
from tallystick.operations.status import Gap, IntervalStatus, Status, problems
from tallystick.operations.status.read import State
from tallystick.operations.status.timeline import TableRows, Timeline, TimelineCommit

Form = dict[str, Any]
STATES: tuple[State, ...] = ("committed", "granted", "replacing")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
# A page shows text; more of a record than this is no help to a reader.
VALUE_CHARS_MAX = 2_000


def instant(at: datetime | None) -> str | None:
    """Return an instant as text, or None."""
    return None if at is None else keys.instant(at)


def span(interval: Interval) -> Form:
    """Return an interval."""
    return {"from": keys.instant(interval.start), "to": keys.instant(interval.end)}


def run(request: Request) -> Form:
    """Return the run of a request, and how often it was cleared."""
    return {"dag": request.dag, "run": request.run, "clear": request.clear}


def totals(of: Totals) -> Form:
    """Return the offsets of each class, and their sum."""
    return {**{name: getattr(of, name) for name in TOTALS}, "offsets": of.offsets}


def _ms(at: datetime) -> int:
    return (at - _EPOCH) // _MS


def _seconds(length: timedelta | None) -> float | None:
    return None if length is None else round(length.total_seconds(), 3)


# ---------------------------------------------------------------- status


def summary(lake: DagLake, of: Status) -> Form:
    """Return the state of a lake in a few numbers, for the page of all lakes."""
    states = Counter(one.state for one in of.intervals)
    return {
        "dag": lake.dag,
        "pipeline": of.pipeline,
        "uri": of.uri,
        "version": of.version,
        "committed_at": instant(of.committed_at),
        "committed_to": instant(of.committed_to),
        "from": instant(of.first),
        "to": instant(of.last),
        "problems": dict(problems(of)),
        "states": {state: states[state] for state in STATES},
        "totals": totals(of.totals),
    }


def status(lake: DagLake, of: Status) -> Form:
    """Return the whole state of a lake."""
    return {
        **summary(lake, of),
        "record": of.record,
        "every_s": _seconds(of.every),
        "topics": {
            name: {"partitions": len(topic.origins), "closed": topic.closed is not None}
            for name, topic in of.topics.items()
        },
        "outputs": dict(of.outputs),
        "intervals": _columns(of.intervals),
        "gaps": [_gap(gap) for gap in of.gaps],
        "grants": [
            {
                **span(one.interval),
                **run(one.request),
                "generation": one.generation,
                "replaces": one.replaces,
                "planned_at": instant(one.planned_at),
                "stuck": one.stuck,
                "release": list(one.release),
            }
            for one in of.grants
        ],
        "pending": [
            {**span(one.interval), "output": one.output, "in_progress": one.in_progress}
            for one in of.pending
        ],
        "registrations": dict(of.registrations),
        "unregistered": [
            {"registration": one.registration, "registered": one.registered, "version": one.version}
            for one in of.unregistered
        ],
        "stale": [{**span(one.interval), "changed": span(one.changed)} for one in of.stale],
        "lost": [span(one.interval) for one in of.lost],
        "all_dead": [span(one.interval) for one in of.all_dead],
        "fewer": [{**span(one.interval), "before": one.before, "now": one.now} for one in of.fewer],
    }


def _columns(intervals: tuple[IntervalStatus, ...]) -> Form:
    runs: dict[tuple[str, str], int] = {}
    numbers = [runs.setdefault((one.owner.dag, one.owner.run), len(runs)) for one in intervals]
    counted = [one.totals or Totals() for one in intervals]
    return {
        "start": [_ms(one.interval.start) for one in intervals],
        "end": [_ms(one.interval.end) for one in intervals],
        "state": [STATES.index(one.state) for one in intervals],
        "generation": [one.generation for one in intervals],
        "run": numbers,
        "runs": [list(one) for one in runs],
        **{name: [getattr(one, name) for one in counted] for name in TOTALS},
    }


def _gap(gap: Gap) -> Form:
    """Return a gap with the parameters of a run that fills it."""
    conf: Form = {"mode": "process", **span(gap.interval)}
    if gap.gone:
        conf["accept_loss"] = True
    return {
        **span(gap.interval),
        "intervals": gap.intervals,
        "offsets": gap.offsets,
        "gone": gap.gone,
        "command": list(gap.command),
        "conf": conf,
    }


def lag(of: Lag) -> Form:
    """Return the lag of each topic and partition, or the error."""
    return {
        "connection": of.connection,
        "at": instant(_whole_ms(of.at)),
        "error": None
        if of.error is None
        else {"kind": of.error.kind, "message": of.error.message, "hint": of.error.hint},
        "topics": [
            {
                "name": name,
                "end": topic.end,
                "read_to": topic.read_to,
                "lag": topic.lag,
                "gone": topic.gone,
                "before": topic.before,
                "after": topic.after,
                "age_s": _seconds(topic.age(of.at)),
                "kept_s": _seconds(topic.kept),
                "partitions": [
                    {
                        "read_to": one.read_to,
                        "start": one.start,
                        "end": one.end,
                        "lag": one.lag,
                        "gone": one.gone,
                        "age_s": _seconds(one.age(of.at)),
                    }
                    for one in topic.partitions
                ],
            }
            for name, topic in of.topics.items()
        ],
    }


def _whole_ms(at: datetime) -> datetime:
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


# ---------------------------------------------------------------- commits


def timeline(of: Timeline) -> Form:
    """Return commits, newest first."""
    return {"commits": [commit(one) for one in of.commits], "before": of.before}


def commit(of: TimelineCommit) -> Form:
    """Return one commit with its intervals."""
    return {
        "record": of.record,
        "version": of.version,
        "committed_at": keys.instant(of.committed_at),
        "library": of.library,
        "compacted": list(of.compacted),
        "intervals": [
            {
                **span(one.committed.interval),
                **run(one.committed.request),
                "generation": one.committed.generation,
                "replaces": one.committed.replaces,
                "fingerprint": one.committed.fingerprint,
                "plan": one.committed.plan,
                "report": one.committed.report,
                "totals": totals(one.committed.totals),
                "planned_at": instant(one.planned_at),
                "tables": tables(one.tables),
            }
            for one in of.intervals
        ],
    }


def tables(of: Mapping[str, TableRows] | None) -> Form | None:
    """Return files, rows and bytes by table; None if they are not known."""
    if of is None:
        return None
    return {
        name: {"files": one.files, "rows": one.rows, "bytes": one.size_bytes}
        for name, one in of.items()
    }


def comparison(of: Comparison) -> Form:
    """Return what changed between two commits."""
    return {
        "left": of.left,
        "right": of.right,
        "commits": of.commits,
        "intervals": [
            {
                **span(one.interval),
                "before": None if one.before is None else totals(one.before),
                "after": totals(one.after),
                "commits": one.commits,
                "code_changed": one.code_changed,
            }
            for one in of.intervals
        ],
        "tables": [
            {
                "name": one.name,
                "columns": [
                    {"id": c.id, "before": c.before, "after": c.after} for c in one.columns
                ],
                "partition_by": [None if r is None else list(r) for r in one.partition_by],
                "files_added": one.files_added,
                "files_dropped": one.files_dropped,
            }
            for one in of.tables
        ],
        "declaration": None
        if of.declaration is None
        else [{"path": o.path, "before": o.before, "after": o.after} for o in of.declaration],
    }


# ---------------------------------------------------------------- dead letters


def dead_letters(of: DeadLetters, *, samples: bool) -> Form:
    """Return the dead letters by kind and field. `samples`: with the records themselves."""
    return {
        "version": of.version,
        "records": of.records,
        "count": of.count,
        "samples_shown": samples,
        "kinds": [
            {
                "kind": kind.kind,
                "field": kind.field,
                "count": kind.count,
                "intervals": [
                    {**span(interval), "count": count}
                    for interval, count in sorted(kind.intervals.items())
                ],
                "samples": [_sample(one) for one in kind.samples] if samples else [],
            }
            for kind in of.kinds
        ],
    }


def _sample(of: DeadLetter) -> Form:
    return {
        **span(of.interval),
        "topic": of.topic,
        "partition": of.partition,
        "offset": of.offset,
        "at": instant(_whole_ms(of.at)),
        "reason": of.reason,
        "key": _bytes(of.key),
        "value": _bytes(of.value),
        "headers": of.headers,
    }


def _bytes(of: bytes | None) -> Form | None:
    """Return bytes as text if they are UTF-8, otherwise in base64; at most VALUE_CHARS_MAX characters of them."""
    if of is None:
        return None
    try:
        text, form = of.decode("utf-8"), "text"
    except UnicodeDecodeError:
        text, form = base64.b64encode(of).decode(), "base64"
    return {"form": form, "shown": text[:VALUE_CHARS_MAX], "bytes": len(of)}
