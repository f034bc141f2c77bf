"""An unclean leader election that rewrites offsets at every moment of a run: a fixture over the fixture `cluster`.

The procedure is that of Kafka's truncation_test: a follower dies, the leader accepts 100 more records alone (min ISR 1)
and dies, too; the follower that lacks them becomes leader and accepts others at their offsets. All tests share one
election: every topic is brought to its moment, waits there, and continues after its log has been rewritten.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic, PartitionMetadata

from support.brokers import TestBroker, done
from support.kafka_cluster import KafkaCluster
from support.log_lake import MOMENTS, LogLake, days, fill
from tallystick.connections.kafka import KafkaSettings
from tallystick.format.plan import Plan
from tallystick_devstack.process import wait_until

MOVED_S = 200.0
LEADER, FOLLOWER = 1, 2
KEPT, LOST, OTHERS = 50, 100, range(1_000, 1_130)
CASES = (*MOMENTS, "before the plan", "before the commit", "after the commit")
FIRST, SECOND = days(0, 1), days(1, 2)


@dataclass
class Case:
    """One topic with its lake: day 1 is committed, day 2 holds the records that will be lost."""

    topic: str
    lake: LogLake
    plan: Plan | None = None
    report: str | None = None
    staging: Future[str] | None = None

    @property
    def numbers(self) -> list[int]:
        """The numbers in the lake's rows."""
        return sorted(row["n"] for row in self.lake.rows().values())


@pytest.fixture(scope="module")
def rewritten(cluster: TestBroker) -> Iterator[dict[str, Case]]:
    """Return every case after the election; the reads that were interrupted by it continue by themselves.

    The first broker remains dead.
    """
    topics = {name: _topic(cluster, f"unclean-{number}") for number, name in enumerate(CASES)}
    for topic in topics.values():
        fill(cluster, topic, *range(KEPT), day=0.5)  # acknowledged by both replicas
    _kill_follower(cluster, topics.values())
    found = {name: _prepared(cluster, name, topic) for name, topic in topics.items()}
    over = threading.Event()
    with ThreadPoolExecutor(len(MOMENTS)) as readers:
        try:
            for moment in MOMENTS:
                arrived = threading.Event()
                plan, stage = found[moment].plan, found[moment].lake.stage
                assert plan is not None
                wait = _wait_for(arrived, over)
                found[moment].staging = readers.submit(stage, plan, moment, wait)
                assert arrived.wait(MOVED_S)
            _elect_follower(cluster, topics.values())
            for topic in topics.values():
                assert _end(cluster, topic) == KEPT
                fill(cluster, topic, *OTHERS, day=1.5)
        finally:
            over.set()
        yield found


def _topic(cluster: TestBroker, name: str) -> str:
    words = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    topic = NewTopic(name, 1, replica_assignment=[[LEADER, FOLLOWER]], config=words)
    done(cluster.admin.create_topics([topic]))
    cluster.wait_for_leaders(name, 1)
    return name


def _prepared(cluster: TestBroker, name: str, topic: str) -> Case:
    lake = LogLake(
        cluster,
        [topic],
        settings=KafkaSettings(
            bootstrap_servers=tuple(cluster.bootstrap.split(",")),
            bootstrap_timeout_ms=60_000,
            request_timeout_ms=60_000,
        ),
        records_per_task=40,
    )
    lake.run(FIRST)
    fill(cluster, topic, *range(KEPT, KEPT + LOST), day=1.5)  # only the leader has these
    case = Case(topic=topic, lake=lake)
    if name == "before the plan":
        return case
    case.plan = lake.plan(SECOND)
    assert case.plan.topics[0].ranges[0].end == KEPT + LOST
    if name not in MOMENTS:
        case.report = lake.stage(case.plan)
    if name == "after the commit":
        lake.commit(case.plan, case.report or "")
    return case


def _wait_for(arrived: threading.Event, over: threading.Event) -> Callable[[], None]:
    def wait() -> None:
        arrived.set()
        assert over.wait(2 * MOVED_S)

    return wait


def _kill_follower(cluster: TestBroker, topics: Iterable[str]) -> None:
    _nodes(cluster).nodes[FOLLOWER].process.kill()
    for topic in topics:
        wait_until(
            lambda t=topic: _partition(cluster, t).isrs == [LEADER],
            deadline_s=MOVED_S,
            what=f"{topic} in sync on broker {LEADER} alone",
        )


def _elect_follower(cluster: TestBroker, topics: Iterable[str]) -> None:
    """Kill the leader: the replica that was dead leads, without the records that only the leader had."""
    _nodes(cluster).nodes[LEADER].process.kill()
    _nodes(cluster).nodes[FOLLOWER].start()
    for topic in topics:
        wait_until(
            lambda t=topic: _partition(cluster, t).leader == FOLLOWER,
            deadline_s=MOVED_S,
            what=f"broker {FOLLOWER} leading {topic}",
        )


def _end(cluster: TestBroker, topic: str) -> int:
    """Return the end offset of the topic, after the client has the new leader epoch."""
    found: list[int] = []

    def answered() -> bool:
        try:
            found.append(cluster.high_watermark(topic))
        except KafkaException as error:
            if error.args[0].code() not in (
                KafkaError.UNKNOWN_LEADER_EPOCH,
                KafkaError.FENCED_LEADER_EPOCH,
                KafkaError.NOT_LEADER_FOR_PARTITION,
            ):
                raise
            return False
        return True

    wait_until(answered, deadline_s=MOVED_S, what=f"an answer about the end of {topic}")
    return found[-1]


def _partition(cluster: TestBroker, topic: str) -> PartitionMetadata:
    return cluster.admin.list_topics(topic, timeout=5).topics[topic].partitions[0]


def _nodes(cluster: TestBroker) -> KafkaCluster:
    assert isinstance(cluster.kafka, KafkaCluster)
    return cluster.kafka
