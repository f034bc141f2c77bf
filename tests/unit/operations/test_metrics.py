"""The measurements of a lake: each metric against a made ledger and a made lag, and the table of all metrics."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.large_lake import LargeLake
from support.small_lake import NOW, TOPIC, day, good_lake
from tallystick.errors import KafkaUnavailable
from tallystick.format.page import TOTALS
from tallystick.operations.lag import Lag, PartitionLag, TopicLag
from tallystick.operations.metrics import (
    METRICS,
    Measurement,
    measurements,
    readable,
)
from tallystick.operations.status import Status, problems, read_status
from tallystick.operations.status.read import PendingRegistration, StaleStatus
from tallystick.store.memory import MemoryStore

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "metrics.md"
HOUR, DAYS = timedelta(hours=1), timedelta(days=1)
URI = "memory://measured"


@pytest.fixture(scope="module")
def status() -> Status:
    """Return the status of the good lake: days 1, 2, 3 and 5 committed, day 2 twice, day 4 a gap, day 6 granted."""
    return read_status(good_lake(MemoryStore("measured")).lake)


def lag_of(*topics: tuple[str, TopicLag], error: KafkaUnavailable | None = None) -> Lag:
    return Lag(connection="default", at=NOW, topics=dict(topics), error=error)


def topic(*partitions: PartitionLag, kept: timedelta | None = 7 * DAYS) -> TopicLag:
    return TopicLag(partitions=partitions, before=None, after=None, kept=kept)


def partition(lag: int, *, gone: int = 0, next_at: datetime | None = None) -> PartitionLag:
    return PartitionLag(read_to=100, start=100 + gone, end=100 + lag, next_at=next_at)


def values(found: tuple[Measurement, ...], name: str, *by: str) -> Any:
    """Return the only value of a metric, or its values by the values of the attributes `by`."""
    named = [one for one in found if one.name == name]
    if not by:
        return named[0].value if named else None
    return {tuple(one.attributes[key] for key in by): one.value for one in named}


def test_each_gauge_of_the_ledger(status: Status) -> None:
    now = NOW + HOUR
    found = measurements(status, None, now=now)
    assert values(found, "tallystick.lake.readable") == 1
    assert values(found, "tallystick.lake.version") == status.version > 6
    assert values(found, "tallystick.commit.age") == 3600
    states = values(found, "tallystick.intervals", "state")
    assert states == {("committed",): 4, ("granted",): 1, ("replacing",): 0}
    assert values(found, "tallystick.gaps") == 1
    assert values(found, "tallystick.gap.offsets") == status.gaps[0].offsets > 0
    assert values(found, "tallystick.stale.intervals") == 0
    assert values(found, "tallystick.dead.intervals") == 0
    assert values(found, "tallystick.stuck.grants") == 0
    assert values(found, "tallystick.latest.dead_letters") == status.intervals[2].dead_share
    classes = values(found, "tallystick.committed.offsets", "class")
    assert classes == {(name,): getattr(status.totals, name) for name in TOTALS}
    assert min(classes["records",], classes["dead_letters",], classes["aborted",]) > 0
    assert not any(one.name.startswith(("tallystick.lag", "tallystick.ret")) for one in found)


def test_counts_are_those_of_tally_status_ok() -> None:
    lake = LargeLake(intervals=1100, granted=3).write(MemoryStore("large"))
    status = read_status(lake)
    found = measurements(status, None, now=NOW)
    assert problems(status) == {
        "gaps": values(found, "tallystick.gaps"),
        "stuck": values(found, "tallystick.stuck.grants"),
        "pending": values(found, "tallystick.pending.intervals", "output")["warehouse",],
    }
    assert values(found, "tallystick.intervals", "state")["granted",] == 3
    assert sum(values(found, "tallystick.intervals", "state").values()) == len(status.intervals)


def test_stale_dead_and_replacing_intervals_are_counted(status: Status) -> None:
    first = status.intervals[0]
    assert first.totals is not None
    dead = replace(first, totals=replace(first.totals, records=0), state="replacing")
    stale = StaleStatus(interval=first.interval, changed=first.interval)
    bad = replace(status, intervals=(dead,), stale=(stale,), committed_at=None, outputs={"b": "x"})
    found = measurements(bad, None, now=NOW)
    assert values(found, "tallystick.dead.intervals") == 1
    assert values(found, "tallystick.stale.intervals") == 1
    assert values(found, "tallystick.intervals", "state")["replacing",] == 1
    assert values(found, "tallystick.latest.dead_letters") == 1
    assert values(found, "tallystick.commit.age") is None
    assert values(found, "tallystick.pending.intervals", "output") == {("b",): 0}


def test_the_share_of_dead_letters_is_that_of_the_latest_interval_with_records(
    status: Status,
) -> None:
    first, second, third, *later = status.intervals
    assert third.totals is not None
    worse = replace(third, totals=replace(third.totals, records=1, dead_letters=3))
    changed = replace(status, intervals=(first, second, worse, *later))
    assert values(measurements(changed, None, now=NOW), "tallystick.latest.dead_letters") == 0.75


def test_a_lake_without_records_has_no_share_of_dead_letters(status: Status) -> None:
    empty = replace(
        status, intervals=status.intervals[-2:]
    )  # day 5 has no offsets, day 6 is granted
    assert values(measurements(empty, None, now=NOW), "tallystick.latest.dead_letters") is None


def test_an_output_that_is_not_declared_any_more_is_measured_while_it_lacks_something() -> None:
    status = read_status(LargeLake(intervals=200).write(MemoryStore("old-output")))
    found = measurements(replace(status, outputs={}), None, now=NOW)
    assert values(found, "tallystick.pending.intervals", "output") == {("warehouse",): 2}


def test_a_registration_is_measured_whether_it_is_pending_or_not(status: Status) -> None:
    lacks = PendingRegistration(registration="a", target="x", registered=None, version=7)
    changed = replace(status, registrations={"a": "x", "b": "y"}, unregistered=(lacks,))
    found = values(
        measurements(changed, None, now=NOW), "tallystick.pending.registrations", "registration"
    )
    assert found == {("a",): 1, ("b",): 0}


def test_each_gauge_of_the_lag(status: Status) -> None:
    lag = lag_of(
        (TOPIC, topic(partition(5, gone=2, next_at=NOW - HOUR), partition(0), kept=None)),
        ("other", topic(partition(3))),
    )
    found = measurements(status, lag, now=NOW)
    assert values(found, "tallystick.lag.known") == 1
    assert values(found, "tallystick.lag.offsets", "topic", "partition") == {
        (TOPIC, "0"): 5,
        (TOPIC, "1"): 0,
        ("other", "0"): 3,
    }
    gone = values(found, "tallystick.lag.gone.offsets", "topic", "partition")
    assert gone == {(TOPIC, "0"): 2, (TOPIC, "1"): 0, ("other", "0"): 0}
    assert values(found, "tallystick.lag.age", "topic") == {(TOPIC,): 3600}


def test_a_lag_that_is_not_known_is_reported_as_such(status: Status) -> None:
    error = KafkaUnavailable("no broker answers.", hint="start one.")
    found = measurements(status, lag_of(error=error), now=NOW)
    assert values(found, "tallystick.lag.known") == 0
    assert values(found, "tallystick.lag.offsets", "topic") == {}


@pytest.mark.parametrize(
    ("kept", "left"), [(30 * DAYS, 30 * DAYS), (7 * DAYS, 7 * DAYS), (None, None)]
)
def test_retention_left_is_that_of_the_first_record_that_no_table_has(
    status: Status, kept: timedelta | None, left: timedelta | None
) -> None:
    """The first span is the gap, which begins on day 4; it is over if the retention is shorter than its age."""
    whole = PartitionLag(read_to=0, start=0, end=10_000)
    lag = replace(lag_of((TOPIC, topic(whole, whole, kept=kept))), at=day(20))
    found = measurements(status, lag, now=NOW)
    expected = {} if left is None else {(TOPIC,): (left - 16 * DAYS).total_seconds()}
    assert values(found, "tallystick.retention.left", "topic") == expected
    committed = measurements(replace(status, uncommitted=()), lag, now=NOW)
    assert values(committed, "tallystick.retention.left", "topic") == {}


# ---------------------------------------------------------------- the table


def test_measurements_have_the_units_and_the_attributes_of_the_table(status: Status) -> None:
    whole = PartitionLag(read_to=0, start=0, end=10_000, next_at=NOW)
    lag = lag_of((TOPIC, topic(whole, whole)))
    large = read_status(LargeLake(intervals=200).write(MemoryStore("table")))
    registered = replace(status, registrations={"company": "sql:default/company/small"})
    found = [*measurements(registered, lag, now=NOW), *measurements(large, None, now=NOW)]
    for one in found:
        assert one.unit == METRICS[one.name].unit
        assert tuple(one.attributes) == METRICS[one.name].attributes
    of_lakes = {name for name, metric in METRICS.items() if metric.source == "lake"}
    assert {one.name for one in found} == of_lakes
    assert readable(URI, is_readable=False).value == 0


def test_no_two_measurements_have_the_same_attributes(status: Status) -> None:
    lag = lag_of((TOPIC, topic(partition(5), partition(5))), ("other", topic(partition(1))))
    found = measurements(status, lag, now=NOW)
    assert len({(one.name, *one.attributes.items()) for one in found}) == len(found)


def test_names_are_those_of_opentelemetry_and_valid_for_statsd() -> None:
    names = list(METRICS)
    for name in names:
        assert re.fullmatch(r"tallystick(\.[a-z][a-z_]*)+", name), name
        # OpenTelemetry: no name is the namespace of another one.
        assert not any(other.startswith(f"{name}.") for other in names), name
    units = {metric.unit for metric in METRICS.values()}
    assert all(
        unit in {"s", "ms", "By", "1"} or re.fullmatch(r"\{[a-z]+\}", unit) for unit in units
    )
    prometheus = [metric.prometheus for metric in METRICS.values()]
    assert len(set(prometheus)) == len(prometheus)


@pytest.mark.parametrize(
    ("name", "prometheus"),
    [
        ("tallystick.gaps", "tallystick_gaps"),
        ("tallystick.lag.age", "tallystick_lag_age_seconds"),
        ("tallystick.latest.dead_letters", "tallystick_latest_dead_letters_ratio"),
        ("tallystick.commit.bytes", "airflow_tallystick_commit_bytes_total"),
        ("tallystick.commit.rows", "airflow_tallystick_commit_rows_total"),
        ("tallystick.plan.duration", "airflow_tallystick_plan_duration_milliseconds"),
    ],
)
def test_prometheus_names_have_units_and_totals(name: str, prometheus: str) -> None:
    assert METRICS[name].prometheus == prometheus


def test_the_page_has_the_table_of_all_metrics() -> None:
    rows = re.findall(
        r"^\| `(tallystick\.[a-z_.]+)` \| (\w+) \| `([^`]+)` \| ([^|]+) \| (.+) \|$",
        PAGE.read_text(),
        re.MULTILINE,
    )
    assert rows == [
        (
            metric.name,
            metric.kind,
            metric.unit,
            ", ".join(f"`{attribute}`" for attribute in metric.attributes),
            metric.meaning,
        )
        for metric in METRICS.values()
    ]
