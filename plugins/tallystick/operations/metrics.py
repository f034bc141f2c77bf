"""The use case "metrics": the measurements of a lake, from its status and its lag, and the table of all metrics.

It reads and sends nothing. `tally metrics` exports the measurements, and Airflow's tasks record the metrics of runs
(`tallystick.airflow.metrics`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from tallystick.format.page import TOTALS
from tallystick.operations.lag import Lag, TopicLag
from tallystick.operations.retention_guard import KeptTopic, time_left
from tallystick.operations.status import Status

Kind = Literal["gauge", "counter", "histogram"]
Source = Literal["lake", "task"]
_STATES = ("committed", "granted", "replacing")
# The suffixes that OpenTelemetry's rules for Prometheus give to units. A unit in braces gives none.
_SUFFIXES = {"s": "seconds", "ms": "milliseconds", "By": "bytes", "1": "ratio"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric: its OpenTelemetry name, its unit in UCUM, the names of its attributes, and its meaning.

    `source`: `lake` if `tally metrics` exports it, `task` if Airflow's tasks record it.
    """

    name: str
    kind: Kind
    unit: str
    attributes: tuple[str, ...]
    meaning: str
    source: Source = "lake"

    @property
    def prometheus(self) -> str:
        """The name in Prometheus, by OpenTelemetry's rules. Airflow's own prefix comes before the metrics of tasks."""
        words = self.name.replace(".", "_").split("_")
        suffix = _SUFFIXES.get(self.unit)
        named = [*words, *([suffix] if suffix is not None and suffix not in words else [])]
        prefix = ["airflow"] if self.source == "task" else []
        return "_".join([*prefix, *named, *(["total"] if self.kind == "counter" else [])])


def _gauge(name: str, unit: str, attributes: str, meaning: str) -> Metric:
    names = ("lake", "pipeline", *attributes.split())
    return Metric(name=name, kind="gauge", unit=unit, attributes=names, meaning=meaning)


def _task(kind: Kind, name: str, unit: str, attributes: str, meaning: str) -> Metric:
    names = ("pipeline", *attributes.split())
    return Metric(name=name, kind=kind, unit=unit, attributes=names, meaning=meaning, source="task")


READABLE = Metric(
    name="tallystick.lake.readable",
    kind="gauge",
    unit="{lake}",
    attributes=("lake",),
    meaning="1 if the lake could be read, 0 if not; then it has no other metric",
)

_OF_LAKES = (
    READABLE,
    _gauge("tallystick.lake.version", "{version}", "", "the version of the root"),
    _gauge("tallystick.commit.age", "s", "", "the time since the last commit; absent if none"),
    _gauge(
        "tallystick.intervals",
        "{interval}",
        "state",
        "the intervals of the ledger: committed, granted, or replacing (committed, and granted again)",
    ),
    _gauge("tallystick.stale.intervals", "{interval}", "", "the stale intervals"),
    _gauge(
        "tallystick.dead.intervals",
        "{interval}",
        "",
        "the committed intervals with dead letters and no record",
    ),
    _gauge("tallystick.gaps", "{gap}", "", "the gaps of the ledger"),
    _gauge("tallystick.gap.offsets", "{offset}", "", "the offsets in the gaps, of all topics"),
    _gauge(
        "tallystick.stuck.grants",
        "{grant}",
        "",
        "the grants that are a day old or more, or whose plan cannot be read",
    ),
    _gauge(
        "tallystick.committed.offsets",
        "{offset}",
        "class",
        "the committed offsets: records, dead_letters, aborted, control, absent or lost",
    ),
    _gauge(
        "tallystick.latest.dead_letters",
        "1",
        "",
        "the share of dead letters in the latest committed interval that has records; absent if none has",
    ),
    _gauge(
        "tallystick.pending.intervals", "{interval}", "output", "the intervals that an output lacks"
    ),
    _gauge(
        "tallystick.pending.registrations",
        "{registration}",
        "registration",
        "1 if a registration lacks the last commit, 0 if not",
    ),
    _gauge(
        "tallystick.lag.known",
        "{lake}",
        "",
        "1 if Kafka answered, 0 if not; absent if Kafka was not queried",
    ),
    _gauge(
        "tallystick.lag.offsets",
        "{offset}",
        "topic partition",
        "the offsets after the latest committed interval",
    ),
    _gauge(
        "tallystick.lag.gone.offsets",
        "{offset}",
        "topic partition",
        "those of them that the log no longer has",
    ),
    _gauge(
        "tallystick.lag.age",
        "s",
        "topic",
        "the age of the oldest record that is not committed; 0 if all are, absent if not known",
    ),
    _gauge(
        "tallystick.retention.left",
        "s",
        "topic",
        "the time until the topic may drop the first record that is not committed and that it still has, by "
        "retention.ms; negative if that is over; absent if all is committed, or if it deletes nothing by age",
    ),
)

_OF_TASKS = (
    *(
        _task(
            "histogram",
            f"tallystick.{task}.duration",
            "ms",
            "",
            f"the time that a successful try of task {task} took",
        )
        for task in ("plan", "stage", "commit", "publish")
    ),
    _task("counter", "tallystick.commit.intervals", "{interval}", "", "committed intervals"),
    _task("counter", "tallystick.commit.records", "{record}", "", "committed records"),
    _task(
        "counter",
        "tallystick.commit.dead_letters",
        "{record}",
        "kind",
        "committed dead letters; the kind is not_read if there are too many to read them at once",
    ),
    _task("counter", "tallystick.commit.rows", "{row}", "table", "rows of the committed files"),
    _task("counter", "tallystick.commit.bytes", "By", "table", "bytes of the committed files"),
    _task(
        "counter",
        "tallystick.publish.intervals",
        "{interval}",
        "output",
        "intervals published to an output",
    ),
    _task("counter", "tallystick.publish.rows", "{row}", "output", "rows published to an output"),
    _task(
        "counter",
        "tallystick.swap.retries",
        "{request}",
        "task",
        "PUTs of the root that did not land, or whose outcome was unknown",
    ),
    _task(
        "counter",
        "tallystick.store.requests",
        "{request}",
        "task verb outcome",
        "requests to the store: get (found, missing), create and replace (applied, not_applied, unknown), "
        "list (found, missing), delete (applied), and any of them with error",
    ),
)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in (*_OF_LAKES, *_OF_TASKS)}
"""All metrics by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One value of a gauge, with the values of its attributes by name."""

    name: str
    value: int | float
    unit: str
    attributes: Mapping[str, str]


def readable(uri: str, *, is_readable: bool) -> Measurement:
    """Return the measurement of whether the lake at `uri` could be read."""
    return Measurement(
        name=READABLE.name,
        value=int(is_readable),
        unit=READABLE.unit,
        attributes={"lake": uri},
    )


def measurements(status: Status, lag: Lag | None, *, now: datetime) -> tuple[Measurement, ...]:
    """Return all measurements of a lake at the time `now`. `lag`: None if Kafka was not queried."""
    found = _Measured(status.uri, status.pipeline)
    _add_ledger(found, status, now)
    if lag is not None:
        found.add("tallystick.lag.known", int(lag.error is None))
        for name, topic in lag.topics.items():
            _add_lag(found, lag, name, topic)
        kept = {name: KeptTopic.of_lag(topic) for name, topic in lag.topics.items()}
        for name, left in time_left(status.uncommitted, kept, now=lag.at).items():
            found.add("tallystick.retention.left", left.total_seconds(), topic=name)
    return (readable(status.uri, is_readable=True), *found.all)


class _Measured:
    """The measurements of one lake, in the order in which they are added."""

    def __init__(self, uri: str, pipeline: str) -> None:
        self.all: list[Measurement] = []
        self._common = {"lake": uri, "pipeline": pipeline}

    def add(self, name: str, value: int | float, **attributes: str) -> None:
        """Append one measurement of the metric `name`."""
        self.all.append(
            Measurement(
                name=name,
                value=value,
                unit=METRICS[name].unit,
                attributes={**self._common, **attributes},
            )
        )


def _add_ledger(found: _Measured, status: Status, now: datetime) -> None:
    found.add("tallystick.lake.version", status.version)
    if status.committed_at is not None:
        found.add("tallystick.commit.age", (now - status.committed_at).total_seconds())
    for state in _STATES:
        count = sum(one.state == state for one in status.intervals)
        found.add("tallystick.intervals", count, state=state)
    found.add("tallystick.stale.intervals", len(status.stale))
    found.add("tallystick.dead.intervals", len(status.all_dead))
    found.add("tallystick.gaps", len(status.gaps))
    found.add("tallystick.gap.offsets", sum(gap.offsets for gap in status.gaps))
    found.add("tallystick.stuck.grants", sum(grant.stuck for grant in status.grants))
    totals = status.totals
    for name in TOTALS:
        found.add("tallystick.committed.offsets", getattr(totals, name), **{"class": name})
    shares = (one.dead_share for one in reversed(status.committed))
    share = next((share for share in shares if share is not None), None)
    if share is not None:
        found.add("tallystick.latest.dead_letters", share)
    # An output that is no longer declared may still lack intervals.
    for output in sorted({*status.outputs, *(one.output for one in status.pending)}):
        count = sum(one.output == output for one in status.pending)
        found.add("tallystick.pending.intervals", count, output=output)
    unregistered = {one.registration for one in status.unregistered}
    for name in sorted(status.registrations):
        found.add("tallystick.pending.registrations", int(name in unregistered), registration=name)


def _add_lag(found: _Measured, lag: Lag, name: str, topic: TopicLag) -> None:
    for number, partition in enumerate(topic.partitions):
        where = {"topic": name, "partition": str(number)}
        found.add("tallystick.lag.offsets", partition.lag, **where)
        found.add("tallystick.lag.gone.offsets", partition.gone, **where)
    age = topic.age(lag.at)
    if age is not None:
        found.add("tallystick.lag.age", age.total_seconds(), topic=name)
