"""The checks of a topic by what its broker returned. tests/kafka/test_doctor_broker.py has them on a real broker."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.small_lake import NOW, TOPIC, SmallLake, adopted, day, days, good_lake, refill
from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import KafkaUnavailable, SettingsError
from tallystick.format.root import RootTopic
from tallystick.kafka.inspection import TopicExtent, TopicSettings
from tallystick.kafka.wire import Leader, TopicLayout, TopicRetention
from tallystick.operations.doctor import kafka
from tallystick.operations.doctor.check import DoctorCheck, State
from tallystick.operations.doctor.kafka import (
    ANSWER_MS,
    LedgerTopic,
    future_check,
    identity_check,
    kafka_checks,
    quick,
    retention_check,
    settings_checks,
    topics_of,
    version_check,
)
from tallystick.operations.doctor.lake import LedgerReading
from tallystick.operations.retention_guard import KeptTopic
from tallystick.operations.status import read_status

AREA = kafka.area_of("default")
HOUR = timedelta(hours=1)
GOOD = TopicSettings(
    kept=TopicRetention(),
    unclean_election=False,
    insync_min=2,
    timestamp_type="CreateTime",
)


@pytest.mark.parametrize(
    ("version", "state"),
    [((2, 8), "error"), ((3, 0), "error"), ((3, 1), "ok"), ((4, 1), "ok")],
)
def test_brokers_have_topic_ids(version: tuple[int, ...], state: State) -> None:
    assert version_check(AREA, version).state == state


def reading_of(small: SmallLake, **kept: KeptTopic) -> LedgerReading:
    return LedgerReading(uri=small.store.uri, status=read_status(small.lake), kept=dict(kept))


def extent(topic_id: str = "id", partitions: int = 2) -> TopicExtent:
    leaders = (Leader(node_id=1, epoch=0),) * partitions
    layout = TopicLayout(name=TOPIC, topic_id=topic_id, leaders=leaders)
    return TopicExtent(layout=layout, starts=(0,) * partitions, ends=(9,) * partitions)


@pytest.mark.parametrize(
    ("found", "cluster", "state"),
    [
        (extent(), "c", "ok"),
        (extent(partitions=3), "c", "ok"),
        (extent("another"), "c", "error"),
        (extent(), "d", "error"),
        (extent(partitions=1), "c", "error"),
    ],
)
def test_a_topic_is_the_one_of_the_ledger(found: TopicExtent, cluster: str, state: State) -> None:
    known = RootTopic(topic_id="id", cluster_id="c", origins=(0, 0))
    topic = LedgerTopic(reading=LedgerReading(uri="s3://lake/a"), name="events@2", known=known)
    check = identity_check(AREA, topic, found, cluster)
    assert (check.name, check.state) == ("events: identity", state)


@pytest.mark.parametrize(
    ("settings", "replicas", "expected"),
    [
        (GOOD, (3, 3), {}),
        (replace(GOOD, unclean_election=True), (3,), {"unclean election": "warning"}),
        (replace(GOOD, unclean_election=None), (3,), {}),
        (replace(GOOD, insync_min=1), (1, 3), {"replicas": "info"}),
        (replace(GOOD, insync_min=1), (3, 3), {}),
        (replace(GOOD, insync_min=2), (1,), {}),
        (replace(GOOD, timestamp_type="LogAppendTime"), (3,), {"timestamps": "info"}),
        (replace(GOOD, timestamp_type=None), (3,), {}),
    ],
)
def test_the_settings_of_a_topic(
    settings: TopicSettings, replicas: tuple[int, ...], expected: dict[str, State]
) -> None:
    found = {c.name: c.state for c in settings_checks(AREA, TOPIC, settings, replicas)}
    assert set(found) == {f"{TOPIC}: {n}" for n in ("unclean election", "replicas", "timestamps")}
    assert {n.removeprefix(f"{TOPIC}: "): s for n, s in found.items() if s != "ok"} == expected


@pytest.mark.parametrize(("partitions", "state"), [(0, "ok"), (2, "warning")])
def test_records_from_the_future_are_a_warning(partitions: int, state: State) -> None:
    assert future_check(AREA, TOPIC, partitions).state == state


def retention(small: SmallLake, kept: KeptTopic) -> DoctorCheck:
    reading = reading_of(small, events=kept)
    assert reading.status is not None
    topic = LedgerTopic(reading=reading, name=TOPIC, known=reading.status.topics[TOPIC])
    return retention_check(AREA, topic, now=NOW)


@pytest.mark.parametrize(
    ("left", "size", "state", "text"),
    [
        (None, None, "ok", "no record is deleted by its age"),
        (None, 1000, "ok", "no record is deleted by its age, retention.bytes=1000"),
        (5 * HOUR, None, "warning", "may be dropped in 5 h"),
        (-HOUR, None, "warning", "may be dropped at any time"),
        (4000 * 24 * HOUR, None, "ok", "4000 d are left for what is not committed"),
    ],
)
def test_retention_is_compared_with_what_is_not_committed(
    left: timedelta | None, size: int | None, state: State, text: str
) -> None:
    kept = None if left is None else NOW - day(4) + left
    check = retention(good_lake(), KeptTopic(kept=kept, kept_bytes=size))
    assert check.state == state
    assert text in check.found


def test_retention_with_nothing_left_to_commit_is_ok() -> None:
    small = SmallLake()
    small.run(days(1, 8))
    ends = tuple(p.end for p in small.log.topics[TOPIC].partitions)
    check = retention(small, KeptTopic(kept=HOUR, starts=(0, 0), ends=ends))
    assert (check.state, check.found) == ("ok", "retention.ms is 1 h")


def test_the_topics_of_a_connection_are_the_open_ones_of_its_ledgers() -> None:
    small = SmallLake()
    small.run(days(1, 2))
    refill(small, 4, 6)
    adopted(small)
    here, other = reading_of(small), reading_of(good_lake())
    other.kafka = "other"
    unread = LedgerReading(uri="memory://none")
    assert [t.name for t in topics_of([here, other, unread], "default")] == ["events@2"]
    assert [t.name for t in topics_of([here, other, unread], "other")] == ["events"]


def test_requests_end_within_the_limit_of_an_examination() -> None:
    long = KafkaSettings(bootstrap_servers=("kafka:9092",))
    assert quick(long).request_timeout_ms == quick(long).bootstrap_timeout_ms == ANSWER_MS
    short = replace(long, request_timeout_ms=10)
    assert quick(short).request_timeout_ms == 10


def named(kind: Any, _: str) -> Any:
    return kind(bootstrap_servers=("kafka:9092",))


class Unreachable:
    """A client whose brokers do not answer."""

    def __init__(self, _: KafkaSettings) -> None: ...

    def __enter__(self) -> Any:
        raise KafkaUnavailable("no broker.", hint="start one.")

    def __exit__(self, *_: object) -> None: ...


def test_the_errors_of_settings_and_client_end_the_checks_of_a_connection() -> None:
    with pytest.raises(KafkaUnavailable):
        list(kafka_checks("default", named, [], now=NOW, connect=Unreachable))  # type: ignore[arg-type]

    def undefined(*_: object) -> Any:
        raise SettingsError("not defined.", hint="define it.")

    with pytest.raises(SettingsError):
        list(kafka_checks("default", undefined, [], now=NOW))
