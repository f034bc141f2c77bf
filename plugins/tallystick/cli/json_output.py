"""Renders answers as JSON for programs: stable names, instants as 2013-01-01T00:00:00.000Z, nothing left out.

docs/reference/cli.md describes each form. Fields may be added; the meaning of a field does not change.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from tallystick.cli.by_name import CatalogNames
from tallystick.cli.publish import Publishing
from tallystick.cli.run_link import run_url
from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.format.keys import Kind
from tallystick.format.page import TOTALS, Totals
from tallystick.format.record import CommittedInterval
from tallystick.operations.gc import Collection, Heap
from tallystick.operations.lag import Lag
from tallystick.operations.preview import Preview
from tallystick.operations.release import Released
from tallystick.operations.retention_guard import SpanOutlook, lag_outlooks
from tallystick.operations.status import (
    CommitLog,
    IntervalStatus,
    LakeTables,
    Status,
    TableStatus,
    dead_share,
)
from tallystick.operations.status.gaps import Gap
from tallystick.operations.verify.proof import CHECKS, Proof
from tallystick.store.probe import ProbeResult

Form = dict[str, Any]


def _lake(uri: str, pipeline: str, version: int) -> Form:
    return {"lake": uri, "pipeline": pipeline, "version": version}


def _interval(interval: Interval) -> Form:
    return {"from": keys.instant(interval.start), "to": keys.instant(interval.end)}


def _request(request: Request) -> Form:
    return {"dag": request.dag, "run": request.run, "clear": request.clear}


def _totals(totals: Totals | None) -> Form | None:
    return (
        None
        if totals is None
        else {**{n: getattr(totals, n) for n in TOTALS}, "offsets": totals.offsets}
    )


def status(
    answer: Status, *, problems: Mapping[str, int], lag: Lag | None, limit: int | None = None
) -> Form:
    """Return the JSON of `tally status`. `limit`: the number of the latest intervals; None and 0: all."""
    return {
        **_lake(answer.uri, answer.pipeline, answer.version),
        "ok": not problems,
        "problems": dict(problems),
        "record": answer.record,
        "committed_at": None if answer.committed_at is None else keys.instant(answer.committed_at),
        "lag": None if lag is None else _lag(lag),
        "retention": None
        if lag is None or lag.error is not None
        else [_outlook(one) for one in lag_outlooks(answer.uncommitted, lag)],
        "topics": {
            name: {
                "id": t.topic_id,
                "cluster": t.cluster_id,
                "partitions": len(t.origins),
                "closed_since": None if t.closed is None else keys.instant(t.closed.since),
            }
            for name, t in answer.topics.items()
        },
        "from": None if answer.first is None else keys.instant(answer.first),
        "to": None if answer.last is None else keys.instant(answer.last),
        "every_s": None if answer.every is None else round(answer.every.total_seconds()),
        "totals": _totals(answer.totals),
        "dead_share": dead_share(answer.totals),
        "generations": {str(g): n for g, n in answer.generations.items()},
        "intervals": [_interval_status(one) for one in answer.intervals[-(limit or 0) :]],
        "pending": [
            {
                **_interval(one.interval),
                "output": one.output,
                "generation": one.generation,
                "in_progress": one.in_progress,
            }
            for one in answer.pending
        ],
        "unregistered": [
            {
                "registration": one.registration,
                "target": one.target,
                "registered": one.registered,
                "version": one.version,
            }
            for one in answer.unregistered
        ],
        "stale": [
            {**_interval(one.interval), "changed": _interval(one.changed)} for one in answer.stale
        ],
        "gaps": [_gap(gap) for gap in answer.gaps],
        "grants": [
            {
                **_interval(grant.interval),
                "owner": _request(grant.request),
                "url": run_url(grant.request, os.environ),
                "generation": grant.generation,
                "plan": grant.plan,
                "replaces": grant.replaces,
                "planned_at": None if grant.planned_at is None else keys.instant(grant.planned_at),
                "age_s": None if grant.age is None else round(grant.age.total_seconds()),
                "stuck": grant.stuck,
                "release": list(grant.release),
            }
            for grant in answer.grants
        ],
        "cancelled": [
            {
                **_interval(one.interval),
                "count": one.count,
                "owners": [_request(r) for r in one.requests],
            }
            for one in answer.cancelled
        ],
        "lost": [
            {**_interval(one.interval), "lost": one.totals.lost, "offsets": one.totals.offsets}
            for one in answer.lost
            if one.totals is not None
        ],
        "fewer": [
            {**_interval(one.interval), "before": one.before, "now": one.now}
            for one in answer.fewer
        ],
    }


def _interval_status(one: IntervalStatus) -> Form:
    return {
        **_interval(one.interval),
        "state": one.state,
        "generation": one.generation,
        "totals": _totals(one.totals),
        "dead_share": one.dead_share,
        "owner": _request(one.owner),
        "plan": one.plan,
    }


def _seconds(length: timedelta | None) -> int | None:
    return None if length is None else round(length.total_seconds())


def _lag(lag: Lag) -> Form:
    return {
        "connection": lag.connection,
        "topics": {
            name: {
                "end": one.end,
                "read_to": one.read_to,
                "lag": one.lag,
                "gone": one.gone,
                "before": one.before,
                "after": one.after,
                "age_s": _seconds(one.age(lag.at)),
                "kept_s": _seconds(one.kept),
                "partitions": [
                    {
                        "end": p.end,
                        "read_to": p.read_to,
                        "lag": p.lag,
                        "gone": p.gone,
                        "next_at": None if p.next_at is None else keys.instant(p.next_at),
                    }
                    for p in one.partitions
                ],
            }
            for name, one in lag.topics.items()
        },
        "error": None
        if lag.error is None
        else {
            "kind": lag.error.kind,
            "message": lag.error.message,
            "hint": lag.error.hint,
        },
    }


def _outlook(one: SpanOutlook) -> Form:
    span = one.span
    return {
        "from": keys.instant(span.start),
        "to": None if span.end is None else keys.instant(span.end),
        "granted": span.granted,
        "topic": one.topic,
        "drops_from": None if one.drops_from is None else keys.instant(one.drops_from),
        "left_s": _seconds(one.left),
        "offsets": one.offsets,
        "gone": one.gone,
        "by_size": one.by_size,
        "endangered": one.endangered,
    }


def _gap(gap: Gap) -> Form:
    return {
        **_interval(gap.interval),
        "intervals": gap.intervals,
        "offsets": gap.offsets,
        "gone": gap.gone,
        "command": list(gap.command),
    }


def log(answer: CommitLog) -> Form:
    """Return the JSON of `tally log`."""
    return {
        **_lake(answer.uri, answer.pipeline, answer.version),
        "commits": [
            {
                "version": line.version,
                "record": line.record,
                "committed_at": keys.instant(line.committed_at),
                "library": line.library,
                "intervals": [_committed(one) for one in line.intervals],
                "compactions": list(line.compactions),
            }
            for line in answer.commits
        ],
        "before": answer.before,
    }


def _committed(one: CommittedInterval) -> Form:
    return {
        **_interval(one.interval),
        "generation": one.generation,
        "totals": _totals(one.totals),
        "owner": _request(one.request),
        "plan": one.plan,
        "report": one.report,
        "replaces": one.replaces,
        "fingerprint": one.fingerprint,
        "files_added": {table: len(files) for table, files in one.added.items()},
        "files_dropped": {table: len(files) for table, files in one.dropped.items()},
    }


def tables(answer: LakeTables, names: CatalogNames) -> Form:
    """Return the JSON of `tally tables`."""
    return {
        **_lake(answer.uri, answer.pipeline, answer.version),
        "tables": [table(one, names) for one in answer.tables],
    }


def table(one: TableStatus, names: CatalogNames) -> Form:
    """Return the JSON of one table."""
    return {
        "name": one.name,
        "identifier": names.identifier(one),
        "rest": names.address(one),
        "metadata": one.metadata,
        "rows": one.rows,
        "files": one.files,
        "bytes": one.size_bytes,
        "partition_by": list(one.partition_by),
        "columns": [
            {"id": c.id, "name": c.name, "type": c.text, "required": c.required}
            for c in one.columns
        ],
    }


def preview(answer: Preview) -> Form:
    """Return the JSON of `tally plan`."""
    return {
        **_lake(answer.uri, answer.pipeline, answer.version),
        **_interval(answer.interval),
        "boundaries": answer.boundaries,
        "parts": [
            {
                **_interval(part.interval),
                "what": part.what,
                "owner": None if part.owner is None else _request(part.owner),
            }
            for part in answer.parts
        ],
    }


def released(answer: Released) -> Form:
    """Return the JSON of `tally release`."""
    return {
        **_interval(answer.interval),
        "version": answer.version,
        "owner": _request(answer.request),
        "plan": answer.plan,
        "generation": answer.generation,
        "committed": answer.committed,
    }


def collection(answer: Collection) -> Form:
    """Return the JSON of `tally gc`."""
    return {
        **_lake(answer.uri, answer.pipeline, answer.version),
        "deleted": answer.deleted,
        "oldest_readable": answer.oldest,
        "cancelled": [
            {
                **_interval(one.interval),
                "owner": _request(one.request),
                "plan": one.plan,
                "planned_at": keys.instant(one.planned_at),
                "committed": one.committed,
            }
            for one in answer.cancelled
        ],
        "garbage": _heaps(answer.garbage),
        "kept": _heaps(answer.kept),
        "examples": {kind: list(some) for kind, some in answer.examples.items()},
        "foreign": list(answer.foreign),
        "remarks": list(answer.remarks),
    }


def _heaps(heaps: Mapping[Kind, Heap]) -> Form:
    return {
        kind: {"objects": heap.objects, "bytes": heap.size_bytes} for kind, heap in heaps.items()
    }


def probe(answer: ProbeResult) -> Form:
    """Return the JSON of `tally probe`."""
    return {
        "lake": answer.uri,
        "conditional_writes": True,
        "scratch_left": answer.scratch if answer.scratch_left else None,
        "steps": [
            {"request": step.request, "expected": step.expected, "found": step.found}
            for step in answer.steps
        ],
    }


def proof(answer: Proof) -> Form:
    """Return the JSON of `tally verify`."""
    return {
        **_lake(answer.uri, answer.pipeline, answer.version),
        "root": answer.root_id,
        "deep": answer.deep,
        "proven": answer.proven,
        "checks": [
            {
                "name": check.name,
                "proves": CHECKS[check.name],
                "proven": check.proven,
                "counted": dict(check.counted),
                "remarks": list(check.remarks),
                "problems": check.problems,
                "findings": [
                    {
                        "rule": finding.rule,
                        "where": finding.where,
                        "message": finding.message,
                        "expected": finding.expected,
                        "found": finding.found,
                    }
                    for finding in check.findings
                ],
            }
            for check in answer.checks
        ],
    }


def cell(value: Any) -> Any:
    """Return one SQL value for JSON: exact decimals as strings, bytes in base64, instants and dates in ISO 8601."""
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return [cell(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): cell(item) for name, item in value.items()}
    if value is None or isinstance(value, bool | int | str):
        return value
    if (
        isinstance(value, float) and value - value == 0
    ):  # neither infinite nor NaN: JSON has no form for them
        return value
    return str(value) if not isinstance(value, Decimal) else format(value, "f")


def published(answer: Publishing) -> Form:
    """Return the JSON of `tally publish`."""
    return {
        **_lake(answer.uri, answer.pipeline, answer.version),
        "published": [
            {
                **_interval(one.interval),
                "output": one.output,
                "generation": one.generation,
                "rows": one.rows,
                "resumed": one.resumed,
            }
            for one in answer.published
        ],
        "failed": [
            {
                "from": None if one.interval is None else keys.instant(one.interval.start),
                "to": None if one.interval is None else keys.instant(one.interval.end),
                "output": one.output,
                "kind": one.error.kind,
                "message": one.error.message,
                "hint": one.error.hint,
            }
            for one in answer.failed
        ],
        "registered": [
            {"registration": one.registration, "version": one.version, "tables": one.tables}
            for one in answer.registered
        ],
    }
