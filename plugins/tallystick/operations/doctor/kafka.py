"""Checks a Kafka connection: the brokers, the login, and the topics that ledgers of lakes read through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.settings import SettingsNamed
from tallystick.errors import SettingsError, TallystickError
from tallystick.format import keys
from tallystick.format.root import RootTopic
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.inspection import (
    BROKER_MIN,
    TopicExtent,
    TopicSettings,
    check_may_read,
    partitions_with_future,
    topic_extent,
    topic_settings,
)
from tallystick.operations.doctor.check import Area, DoctorCheck
from tallystick.operations.doctor.lake import LedgerReading
from tallystick.operations.retention_guard import KeptTopic, left_min, length_text, time_left
from tallystick.operations.run_request import AHEAD_MAX

ANSWER_MS = 4_000
Connect = Callable[[KafkaSettings], KafkaClient]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerTopic:
    """A topic that a ledger reads: its name in the ledger, and its identity there."""

    reading: LedgerReading
    name: str
    known: RootTopic


def area_of(connection: str) -> Area:
    """Return the area of a Kafka connection."""
    return Area(f"kafka {connection}")


def topics_of(readings: Sequence[LedgerReading], connection: str) -> list[LedgerTopic]:
    """Return the open topics of the ledgers whose latest plan names this connection."""
    return [
        LedgerTopic(reading=reading, name=name, known=topic)
        for reading in readings
        if reading.status is not None and reading.kafka == connection
        for name, topic in reading.status.topics.items()
        if topic.closed is None
    ]


def quick(settings: KafkaSettings) -> KafkaSettings:
    """Return settings whose requests end soon, so that the limit of an examination is kept."""
    return replace(
        settings,
        request_timeout_ms=min(settings.request_timeout_ms, ANSWER_MS),
        bootstrap_timeout_ms=min(settings.bootstrap_timeout_ms, ANSWER_MS),
        empty_fetch_timeout_ms=min(settings.empty_fetch_timeout_ms, ANSWER_MS),
    )


def kafka_checks(
    connection: str,
    settings_named: SettingsNamed,
    topics: Sequence[LedgerTopic],
    *,
    now: datetime,
    connect: Connect = KafkaClient,
) -> Iterator[DoctorCheck]:
    """Yield the checks of one connection and of the topics that are read through it.

    Fills `kept` of the topics' readings. Raises the errors of the client if no broker accepts the connection.
    """
    area = area_of(connection)
    settings = settings_named(KafkaSettings, connection)
    with connect(quick(settings)) as client:
        user = f" as {settings.sasl_plain_username}" if settings.sasl_plain_username else ""
        yield area.ok("login", f"cluster {client.cluster_id()} at {settings.endpoint}{user}")
        yield version_check(area, client.broker_version())
        for topic in topics:
            try:
                yield from _topic(area, client, topic, now)
            except TallystickError as error:
                yield area.of_error(_place(topic), error)


def version_check(area: Area, version: tuple[int, ...]) -> DoctorCheck:
    """Check that the brokers have what a reader needs."""
    shown = ".".join(map(str, version))
    if version >= BROKER_MIN:
        return area.ok("brokers", f"Kafka {shown} or compatible")
    return area.error(
        "brokers",
        f"expected Kafka 3.1 or newer, found {shown}",
        "upgrade the brokers: readers need topic ids.",
    )


def _place(topic: LedgerTopic) -> str:
    return keys.kafka_topic(topic.name)


def _topic(
    area: Area, client: KafkaClient, topic: LedgerTopic, now: datetime
) -> Iterator[DoctorCheck]:
    name = _place(topic)
    extent = topic_extent(client, name)
    found = identity_check(area, topic, extent, client.cluster_id())
    yield found
    if found.state != "ok":
        return
    yield _read(area, client, name, extent)
    try:
        settings = topic_settings(client, name)
    except SettingsError as error:
        # Records of the ledger may be gone all the same, which the offsets show.
        topic.reading.kept[topic.name] = _kept(extent, None)
        yield area.warning(
            f"{name}: settings",
            f"{error.message.rstrip('.')}: what the topic keeps is not known",
            "grant DESCRIBE_CONFIGS on the topic to the connection's user: plan tasks need it.",
        )
    else:
        topic.reading.kept[topic.name] = _kept(extent, settings)
        yield retention_check(area, topic, now=now)
        yield from settings_checks(area, name, settings, client.replicas(name))
    after_ms = round((now + AHEAD_MAX).timestamp() * 1000)
    yield future_check(area, name, partitions_with_future(client, extent.layout, after_ms))


def identity_check(
    area: Area, topic: LedgerTopic, extent: TopicExtent, cluster_id: str
) -> DoctorCheck:
    """Check that the topic is the one of the ledger."""
    name, known = _place(topic), topic.known
    expected, found = (known.topic_id, known.cluster_id), (extent.layout.topic_id, cluster_id)
    if expected != found:
        return area.error(
            f"{name}: identity",
            f"topic {name}: expected id {known.topic_id} in cluster {known.cluster_id} as in the ledger, found id "
            f"{extent.layout.topic_id} in cluster {cluster_id}",
            "correct the connection; or, if this topic is to follow the old one, look at what this command shows.",
            ("tally", "topic", "adopt", name, topic.reading.uri),
        )
    if len(extent.starts) < len(known.origins):
        return area.error(
            f"{name}: identity",
            f"expected at least {len(known.origins)} partitions as in the ledger, found {len(extent.starts)}",
            "find out who recreated the topic: otherwise partitions never disappear.",
        )
    return area.ok(f"{name}: identity", f"id {known.topic_id}, {len(extent.starts)} partitions")


def _read(area: Area, client: KafkaClient, name: str, extent: TopicExtent) -> DoctorCheck:
    try:
        check_may_read(client, extent)
    except SettingsError as error:
        return area.error(
            f"{name}: read", error.message, "grant READ on the topic to the connection's user."
        )
    return area.ok(f"{name}: read", "permitted")


def _kept(extent: TopicExtent, settings: TopicSettings | None) -> KeptTopic:
    kept = None if settings is None else settings.kept
    return KeptTopic(
        kept=None if kept is None or kept.kept_ms is None else timedelta(milliseconds=kept.kept_ms),
        kept_bytes=None if kept is None else kept.kept_bytes,
        starts=extent.starts,
        ends=extent.ends,
    )


# ---------------------------------------------------------------- settings of a topic


def retention_check(area: Area, topic: LedgerTopic, *, now: datetime) -> DoctorCheck:
    """Check that the topic keeps records until they are committed, by what the ledger still needs of it."""
    name, status = f"{_place(topic)}: retention", topic.reading.status
    kept = topic.reading.kept[topic.name]
    by_size = "" if kept.kept_bytes is None else f", retention.bytes={kept.kept_bytes}"
    if kept.kept is None:
        return area.ok(name, f"no record is deleted by its age{by_size}")
    found = f"retention.ms is {length_text(kept.kept)}{by_size}"
    spans = () if status is None else status.uncommitted
    left = time_left(spans, {topic.name: kept}, now=now).get(topic.name)
    if left is None:
        return area.ok(name, found)
    if left < left_min(kept.kept):
        when = f"in {length_text(left)}" if left > timedelta(0) else "at any time"
        return area.warning(
            name,
            f"{found}; the first record that is not committed may be dropped {when}",
            "raise retention.ms until the gaps are filled and the runs have caught up.",
        )
    return area.ok(name, f"{found}, {length_text(left)} are left for what is not committed")


def settings_checks(
    area: Area, name: str, settings: TopicSettings, replicas: Sequence[int]
) -> Iterator[DoctorCheck]:
    """Yield the checks of a topic's settings that decide if acknowledged records survive, and of its timestamps."""
    if settings.unclean_election:
        yield area.warning(
            f"{name}: unclean election",
            "unclean.leader.election.enable=true: after one, acknowledged records are gone, and offsets mean other ones",
            "set it to false.",
        )
    else:
        yield area.ok(f"{name}: unclean election", "off")
    if min(replicas, default=1) == 1 and settings.insync_min == 1:
        yield area.info(
            f"{name}: replicas",
            "one replica, and min.insync.replicas=1: a lost disk loses records",
            "use three replicas and min.insync.replicas=2.",
        )
    else:
        yield area.ok(f"{name}: replicas", f"{min(replicas, default=1)}")
    if settings.timestamp_type == "LogAppendTime":
        yield area.info(
            f"{name}: timestamps",
            "message.timestamp.type=LogAppendTime: intervals are by the time at which records arrived",
            "do nothing if that is intended; otherwise set CreateTime.",
        )
    else:
        yield area.ok(f"{name}: timestamps", settings.timestamp_type or "CreateTime")


def future_check(area: Area, name: str, partitions: int) -> DoctorCheck:
    """Check that no record has a timestamp of more than an hour ahead."""
    if not partitions:
        return area.ok(f"{name}: future", "no record from the future")
    return area.warning(
        f"{name}: future",
        f"records with timestamps of more than an hour ahead in {partitions} partitions: planning searches past them",
        "correct the producer (microseconds instead of milliseconds?), or its clock.",
    )
