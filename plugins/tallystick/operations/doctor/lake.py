"""Checks the ledger of a lake: its problems with the commands that fix them, its retention, and what its plans need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tallystick.connections.http import HttpSettings
from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.postgres import PostgresSettings
from tallystick.connections.registry import RegistrySettings
from tallystick.connections.settings import Settings
from tallystick.connections.smtp import SmtpSettings
from tallystick.errors import Corrupt, NothingPlanned, TallystickError
from tallystick.format.plan import Plan
from tallystick.lake import Lake
from tallystick.operations.doctor.check import Area, DoctorCheck
from tallystick.operations.lag import DEFAULT_CONNECTION
from tallystick.operations.retention_guard import (
    KeptTopic,
    SpanOutlook,
    endangered,
    outlook_text,
    outlooks,
    span_text,
)
from tallystick.operations.status import Status, read_status

SHOWN_MAX = 5
# An output's target begins with its kind and the name of its connection: postgres:main/schema.table.
_KINDS: Mapping[str, type[Settings]] = {
    kind.KIND: kind for kind in (KafkaSettings, PostgresSettings, HttpSettings, SmtpSettings)
}
Needed = tuple[type[Settings], str]
"""A connection that the plans of a lake need: its kind and its name."""


@dataclass(slots=True, kw_only=True)
class LedgerReading:
    """What was read of one lake, for the checks that come after it. `status` is None if the ledger cannot be read.

    `kafka`: the connection of the latest plan. `needed`: all connections of that plan and of the outputs. `kept`: what
    the topics keep, by the ledger's names, as far as Kafka was read.
    """

    uri: str
    status: Status | None = None
    kafka: str = DEFAULT_CONNECTION
    needed: frozenset[Needed] = frozenset()
    kept: dict[str, KeptTopic] = field(default_factory=dict)


def area_of(uri: str) -> Area:
    """Return the area of a lake's ledger."""
    return Area(f"ledger {uri}")


def ledger_checks(lake: Lake, reading: LedgerReading) -> Iterator[DoctorCheck]:
    """Read the ledger into `reading`, and yield its checks."""
    area = area_of(reading.uri)
    try:
        status = read_status(lake, newest=1)
    except NothingPlanned as error:
        yield area.info("root", error.message, error.hint)
        return
    except TallystickError as error:
        yield area.of_error("root", error)
        return
    reading.status = status
    plan = _latest_plan(lake, status)
    if plan is not None:
        reading.kafka = str(plan.spec.get("kafka", DEFAULT_CONNECTION))
    reading.needed = needed_connections(status, plan)
    yield area.ok("root", f"{status.pipeline}, version {status.version}")
    yield from problem_checks(status)


def needed_connections(status: Status, plan: Plan | None) -> frozenset[Needed]:
    """Return the connections that the latest plan and the outputs of the root name."""
    found: set[Needed] = set()
    if plan is not None:
        found.add((KafkaSettings, str(plan.spec.get("kafka", DEFAULT_CONNECTION))))
        found |= {(RegistrySettings, registry.name) for registry in plan.registries}
    for target in status.outputs.values():
        kind, colon, rest = target.partition(":")
        name, slash, _ = rest.partition("/")
        if colon and slash and kind in _KINDS and name:
            found.add((_KINDS[kind], name))
    return frozenset(found)


def _latest_plan(lake: Lake, status: Status) -> Plan | None:
    for one in reversed(status.intervals):
        with suppress(Corrupt):
            plan = lake.plan(one.plan)
            if plan is not None:
                return plan
    return None


# ---------------------------------------------------------------- problems


def problem_checks(status: Status) -> Iterator[DoctorCheck]:
    """Yield a check for each problem of `tally status`, with the command that fixes the first of them."""
    area = area_of(status.uri)
    found = [
        check
        for check in (
            _gaps(area, status),
            _stuck(area, status),
            _pending(area, status),
            _unregistered(area, status),
            _stale(area, status),
            _dead(area, status),
            _lost(area, status),
        )
        if check is not None
    ]
    yield from found
    if not found:
        yield area.ok("problems", "none")


def _gaps(area: Area, status: Status) -> DoctorCheck | None:
    if not status.gaps:
        return None
    first = status.gaps[0]
    return area.warning(
        "gaps",
        f"{_count(len(status.gaps), 'gap')}, the first {_span(first.interval.start, first.interval.end)}, "
        f"{first.offsets:,} offsets",
        f"fill the first one with this command; `tally status {status.uri}` lists all.",
        first.command,
    )


def _stuck(area: Area, status: Status) -> DoctorCheck | None:
    stuck = [grant for grant in status.grants if grant.stuck]
    if not stuck:
        return None
    first = stuck[0]
    return area.warning(
        "stuck grants",
        f"{_count(len(stuck), 'grant')} a day old or more, the first of {first.request}, "
        f"{_span(first.interval.start, first.interval.end)}",
        "look at its run in Airflow; if it will never commit, cancel the grant with this command.",
        first.release,
    )


def _pending(area: Area, status: Status) -> DoctorCheck | None:
    if not status.pending:
        return None
    outputs = sorted({one.output for one in status.pending})
    return area.warning(
        "pending outputs",
        f"{_count(len(status.pending), 'interval')} to publish to {', '.join(outputs)}",
        "clear the publish task of a run, or run this command with the pipeline's file.",
        ("tally", "publish", status.uri, "--pipeline", "FILE"),
    )


def _unregistered(area: Area, status: Status) -> DoctorCheck | None:
    if not status.unregistered:
        return None
    names = [one.registration for one in status.unregistered]
    return area.warning(
        "pending registrations",
        f"version {status.unregistered[0].version} to register in {', '.join(names)}",
        "clear the publish task of a run, or run this command with the pipeline's file.",
        ("tally", "publish", status.uri, "--pipeline", "FILE"),
    )


def _stale(area: Area, status: Status) -> DoctorCheck | None:
    if not status.stale:
        return None
    dags = status.dags
    dag = next(iter(dags)) if len(dags) == 1 else "DAG"
    return area.warning(
        "stale intervals",
        f"{_count(len(status.stale), 'interval')} whose lookback has changed since",
        "replace them with one run:",
        ("airflow", "dags", "trigger", dag, "--conf", '{"mode": "refresh"}'),
    )


def _dead(area: Area, status: Status) -> DoctorCheck | None:
    if not status.all_dead:
        return None
    return area.warning(
        "dead letters",
        f"{_count(len(status.all_dead), 'interval')} with dead letters and not one record",
        "look at their reasons with this command, correct the declaration, and replace them.",
        ("tally", "dead-letters", status.uri),
    )


def _lost(area: Area, status: Status) -> DoctorCheck | None:
    if not status.lost:
        return None
    return area.info(
        "lost offsets",
        f"{_count(status.totals.lost, 'offset')} in {_count(len(status.lost), 'interval')}; an operator accepted that",
        "do nothing: they remain in the ledger.",
    )


# ---------------------------------------------------------------- retention


def guard_checks(reading: LedgerReading, *, now: datetime) -> Iterator[DoctorCheck]:
    """Yield a check for each span that is not committed and of which a topic drops records, at most 5."""
    if reading.status is None:
        return
    area = area_of(reading.uri)
    if not reading.kept:
        yield area.unknown(
            "retention",
            "Kafka was not read, so it is not known what the topics still have",
            "correct the connection to Kafka first.",
        )
        return
    found = outlooks(reading.status.uncommitted, reading.kept, now=now)
    bad = endangered(found)
    for one in bad[:SHOWN_MAX]:
        yield _guard(area, one)
    if len(bad) > SHOWN_MAX:
        yield area.warning(
            "retention",
            f"{len(bad) - SHOWN_MAX:,} more spans",
            "list them with this command.",
            ("tally", "status", reading.uri),
        )
    if not bad:
        yield area.ok("retention", _least(found))


def _guard(area: Area, one: SpanOutlook) -> DoctorCheck:
    found = f"{span_text(one.span)}: {outlook_text(one)}"
    raise_it = f"raise retention.ms of topic {one.topic} first"
    if one.span.command:
        fix, command = f"{raise_it}, then fill the gap with this command.", one.span.command
        if one.gone:
            fix = f"{raise_it}; a run of the gap needs accept_loss=true for what is gone."
    elif one.span.granted:
        fix, command = f"{raise_it}, and look at the runs that have the grants.", ()
    else:
        fix, command = f"{raise_it}, and look if the DAG is paused.", ()
    if one.gone:
        return area.error("retention", found, fix, command)
    return area.warning("retention", found, fix, command)


def _least(found: tuple[SpanOutlook, ...]) -> str:
    left = [one.left for one in found if one.left is not None]
    if not left:
        return "nothing that is not committed is deleted by its age"
    return f"{min(left) // timedelta(hours=1):,} h are left, at least, before records are dropped"


def _span(start: datetime, end: datetime) -> str:
    return f"{start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
