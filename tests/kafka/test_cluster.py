"""Several brokers: planning reads all leaders, a reader follows a leader that moves, and uses a nearer replica.

No run continues on a log that an unclean election has rewritten.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from support.brokers import TestBroker, send
from support.kafka_cluster import NODES, KafkaCluster
from support.log_lake import MOMENTS, LogLake, changed, days, fill
from support.unclean_election import KEPT, LOST, OTHERS, SECOND, Case, rewritten
from tallystick.cli.topic import ends_on
from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import IdentityChanged, LogDamaged
from tallystick.format.offsets import OffsetRange, Position
from tallystick.kafka.client import KafkaClient, PendingFetch
from tallystick.kafka.planning import LogPlanner
from tallystick.kafka.reader import RangeReader
from tallystick.kafka.shared import SharedClient
from tallystick.kafka.wire import FetchOrder
from tallystick.operations.adopt_topic import adopt
from tallystick_devstack.process import wait_until

__all__ = ["rewritten"]

MOVED_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    with KafkaCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield TestBroker(running, AdminClient({"bootstrap.servers": running.bootstrap}))


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[FetchOrder]:
    """Record the fetches in order, with their replicas."""
    sent: list[FetchOrder] = []
    fetch = KafkaClient.fetch

    def noted(client: KafkaClient, order: FetchOrder) -> PendingFetch:
        sent.append(order)
        return fetch(client, order)

    monkeypatch.setattr(KafkaClient, "fetch", noted)
    return sent


def settings(cluster: TestBroker, **options: Any) -> KafkaSettings:
    return KafkaSettings(
        bootstrap_servers=tuple(cluster.bootstrap.split(",")),
        bootstrap_timeout_ms=20_000,
        request_timeout_ms=20_000,
        **options,
    )


def nodes(cluster: TestBroker) -> KafkaCluster:
    assert isinstance(cluster.kafka, KafkaCluster)
    return cluster.kafka


def reader(cluster: TestBroker, topic: str, **options: Any) -> RangeReader:
    client_settings = settings(
        cluster, **({"client_rack": rack} if (rack := options.pop("rack", None)) else {})
    )
    with KafkaClient(client_settings) as client:
        topic_id, cluster_id = client.layout(topic).topic_id, client.cluster_id()
    return RangeReader(
        client_settings,
        topic=topic,
        topic_id=topic_id,
        cluster_id=cluster_id,
        compacted=False,
        fetch_bytes_max=options.pop("fetch_bytes_max", 4 << 10),
        shared=options.pop("shared", None),
        batch_rows=1,  # each batch of the log is returned by itself, so a test can do something between two
    )


def leader_of(cluster: TestBroker, topic: str) -> int:
    with KafkaClient(settings(cluster)) as client:
        return client.layout(topic).leaders[0].node_id


def in_sync(cluster: TestBroker, topic: str) -> bool:
    found = cluster.admin.list_topics(topic, timeout=5).topics[topic].partitions.values()
    return all(len(partition.isrs) == NODES for partition in found)


def filled(cluster: TestBroker, records: int) -> str:
    """Create a topic on all three brokers, with all replicas in sync."""
    topic = cluster.topic(replicas=NODES, min_insync_replicas=2)
    producer = cluster.producer(batch_num_messages=20)
    send(producer, topic, *(b"%d" % n * 50 for n in range(records)), timestamp=1_000)
    # With this record, every follower gets the high watermark of those before it.
    send(producer, topic, b"one more", timestamp=1_000)
    wait_until(lambda: in_sync(cluster, topic), deadline_s=MOVED_S, what="three replicas in sync")
    return topic


def test_planning_reads_every_leader(cluster: TestBroker) -> None:
    topic = cluster.topic(6)
    for partition in range(6):
        send(cluster.producer(), topic, *(b"x",) * partition, partition=partition, timestamp=1_000)
    with LogPlanner(settings(cluster)) as planner:
        described = planner.describe([topic])[topic]
        found = planner.boundary(topic, 2_000, [0] * 6)
    with KafkaClient(settings(cluster)) as client:
        assert len({leader.node_id for leader in client.layout(topic).leaders}) > 1
    assert [p.high_watermark for p in described.partitions] == [0, 1, 2, 3, 4, 5]
    assert [position.offset for position in found] == [0, 1, 2, 3, 4, 5]


def test_a_read_continues_at_the_new_leader(cluster: TestBroker) -> None:
    topic = filled(cluster, 400)
    ours = reader(cluster, topic)
    batches = ours.read(
        0, OffsetRange(start=0, end=400), planned_end=Position(offset=400, leader_epoch=0)
    )
    found = next(batches)["offset"].to_pylist()
    old = leader_of(cluster, topic)
    nodes(cluster).nodes[old].process.kill()
    try:
        for batch in batches:
            found += batch["offset"].to_pylist()
        assert found == list(range(400))
        assert ours.account.records == 400
        assert leader_of(cluster, topic) != old
    finally:
        nodes(cluster).nodes[old].start()
    wait_until(lambda: in_sync(cluster, topic), deadline_s=MOVED_S, what="the old leader back")


def test_a_shared_client_reads_the_next_range_from_the_new_leader(cluster: TestBroker) -> None:
    topic = filled(cluster, 400)
    old = leader_of(cluster, topic)
    with SharedClient(settings(cluster)) as shared:
        ours = reader(cluster, topic, shared=shared)
        first = ours.read(0, OffsetRange(start=0, end=200))
        found = [o for batch in first for o in batch["offset"].to_pylist()]
        nodes(cluster).nodes[old].process.kill()
        try:
            second = ours.read(
                0,
                OffsetRange(start=200, end=400),
                leader_epoch=0,
                planned_end=Position(offset=400, leader_epoch=0),
            )
            found += [o for batch in second for o in batch["offset"].to_pylist()]
        finally:
            nodes(cluster).nodes[old].start()
    assert found == list(range(400))
    assert ours.account.records == 200
    assert leader_of(cluster, topic) != old
    wait_until(lambda: in_sync(cluster, topic), deadline_s=MOVED_S, what="the old leader back")


@pytest.mark.parametrize("rack", [1, 2, 3])
def test_the_replica_in_the_rack_of_the_client_is_read(
    cluster: TestBroker, orders: list[FetchOrder], rack: int
) -> None:
    topic = filled(cluster, 400)
    ours = reader(cluster, topic, rack=f"rack-{rack}")
    read = ours.read(0, OffsetRange(start=0, end=400))
    assert [o for batch in read for o in batch["offset"].to_pylist()] == list(range(400))
    assert ours.account.records == 400
    # The last fetch, which does not wait, checks the topic's id at the leader.
    assert (orders[-1].replica, orders[-1].wait_ms) == (None, 0)
    replicas = {order.replica for order in orders[1:-1]}
    assert replicas == ({None} if leader_of(cluster, topic) == rack else {rack})


def test_a_read_continues_at_the_leader_if_its_replica_dies(
    cluster: TestBroker, orders: list[FetchOrder]
) -> None:
    topic = filled(cluster, 400)
    leader = leader_of(cluster, topic)
    near = next(node for node in nodes(cluster).nodes if node != leader)
    batches = reader(cluster, topic, rack=f"rack-{near}").read(0, OffsetRange(start=0, end=400))
    found = next(batches)["offset"].to_pylist()
    assert orders[-1].replica == near
    nodes(cluster).nodes[near].process.kill()
    try:
        found += [o for batch in batches for o in batch["offset"].to_pylist()]
    finally:
        nodes(cluster).nodes[near].start()
    assert found == list(range(400))
    assert orders[-1].replica is None


def test_a_client_in_a_rack_without_brokers_reads_from_the_leader(
    cluster: TestBroker, orders: list[FetchOrder]
) -> None:
    topic = filled(cluster, 100)
    read = reader(cluster, topic, rack="other").read(0, OffsetRange(start=0, end=100))
    assert sum(batch.num_rows for batch in read) == 100
    assert {order.replica for order in orders} == {None}


# ---------------------------------------------------------------- unclean election (last: a broker remains dead after it)


@pytest.mark.parametrize("when", MOMENTS)
def test_a_log_that_is_rewritten_before_its_read_ends_is_not_staged(
    rewritten: dict[str, Case], when: str
) -> None:
    case = rewritten[when]
    assert case.staging is not None
    assert case.plan is not None
    message = rf"the record before offset {KEPT + LOST} was of leader epoch \d+, .* ends at {KEPT}"
    with pytest.raises(LogDamaged, match=message) as caught:
        case.staging.result(2 * MOVED_S)
    assert "unclean leader election" in caught.value.hint
    assert "A new plan fails, too" in caught.value.hint
    # Offsets and counts match, so a reader that checks nothing else would stage the same plan.
    case.lake.assert_refused(LogDamaged, "written again", run=lambda: case.lake.stage(case.plan))
    case.lake.assert_refused(
        LogDamaged,
        "no longer has the history in which the boundary at 2013-01-03",
        run=lambda: case.lake.planned(SECOND, clear=1),
    )
    assert case.numbers == list(range(KEPT))
    case.lake.assert_verified()


def test_records_lost_before_they_were_planned_are_in_no_plan(
    rewritten: dict[str, Case],
) -> None:
    """The cluster lost acknowledged records. The boundary after them is valid, and the day has the new records."""
    lake = rewritten["before the plan"].lake
    lake.run(SECOND)
    lake.assert_equals_kafka()
    assert rewritten["before the plan"].numbers == [*range(KEPT), *OTHERS]


def test_records_read_before_the_log_was_rewritten_are_committed_and_the_next_plan_stops(
    rewritten: dict[str, Case],
) -> None:
    """The rows are the acknowledged records, at the epoch that the plan names. No other copy of them exists."""
    case = rewritten["before the commit"]
    assert case.plan is not None
    assert case.report is not None
    case.lake.commit(case.plan, case.report)
    assert case.numbers == list(range(KEPT + LOST))
    case.lake.assert_refused(
        LogDamaged,
        "the boundary at 2013-01-03",
        f"before offset {KEPT + LOST}",
        run=lambda: case.lake.planned(days(2, 3)),
    )
    case.lake.assert_verified()


def test_a_rewritten_log_is_continued_by_adopting_a_recreated_topic(
    cluster: TestBroker, rewritten: dict[str, Case]
) -> None:
    """Rows that were read remain, records of the new log are in a new incarnation: each row once."""
    case = rewritten["before the commit"]
    assert case.plan is not None
    assert case.report is not None
    case.lake.commit(case.plan, case.report)  # as in the test above, if it ran
    cluster.delete_topic(case.topic)
    cluster.topic(name=case.topic)
    fill(cluster, case.topic, *OTHERS, day=1.5)
    case.lake.assert_refused(
        IdentityChanged, "tally topic adopt", run=lambda: case.lake.planned(days(2, 3))
    )
    with LogPlanner(case.lake.settings) as log:
        state = log.describe([case.topic])[case.topic]
    adopt(
        case.lake.lake,
        case.topic,
        lambda: state,
        ends_of=lambda _: {},
        confirmed_id=state.topic_id,
    )
    done = case.lake.run(days(2, 3))
    assert done is not None
    assert (done.totals.records, done.totals.lost) == (len(OTHERS), 0)
    assert case.numbers == [*range(KEPT + LOST), *OTHERS]
    case.lake.assert_verified()


def test_commits_of_a_rewritten_log_are_not_replaced(rewritten: dict[str, Case]) -> None:
    case = rewritten["after the commit"]
    again = changed(case.lake)
    case.lake.assert_refused(
        LogDamaged, "written again", run=lambda: case.lake.planned(SECOND, **again)
    )
    case.lake.assert_refused(LogDamaged, "written again", run=lambda: case.lake.planned(days(2, 3)))
    assert case.numbers == list(range(KEPT + LOST))
    case.lake.assert_verified()


def test_a_topic_of_the_same_name_on_another_cluster_is_refused(
    broker: TestBroker, cluster: TestBroker, rewritten: dict[str, Case]
) -> None:
    case = rewritten["after the commit"]
    broker.topic(name=case.topic)
    fill(broker, case.topic, *range(KEPT + LOST), day=0.5)
    plan = case.plan
    assert plan is not None
    on_other_cluster = replace(case.lake, settings=broker.settings)
    on_other_cluster.lake = case.lake.lake
    for run in (lambda: on_other_cluster.planned(days(2, 3)), lambda: on_other_cluster.stage(plan)):
        error = on_other_cluster.assert_refused(IdentityChanged, plan.topics[0].cluster_id, run=run)
        assert "cluster" in str(error)


def test_a_topic_on_another_cluster_is_adopted_at_the_end_of_the_old_one(
    broker: TestBroker, cluster: TestBroker
) -> None:
    topic = cluster.topic()
    fill(cluster, topic, *range(10), day=0.5)
    lake = LogLake(cluster, [topic])
    lake.run(days(0, 1))
    fill(cluster, topic, *range(10, 14), day=1.5)  # these are never read
    broker.topic(name=topic, partitions=2)
    fill(broker, topic, *range(100, 110), day=1.5, partition=1)
    moved = replace(lake, settings=broker.settings)
    moved.lake = lake.lake
    moved.assert_refused(
        IdentityChanged, "tally topic adopt", run=lambda: moved.planned(days(1, 2))
    )
    ends = ends_on(lake.lake.load_existing().root, topic, "old", environ=on(cluster))
    assert ends == {0: 14}
    with pytest.raises(IdentityChanged, match="of connection old: expected id"):
        ends_on(lake.lake.load_existing().root, topic, "old", environ=on(broker))
    with LogPlanner(broker.settings) as log:
        state = log.describe([topic])[topic]
    adopt(lake.lake, topic, lambda: state, ends_of=lambda _: ends, confirmed_id=state.topic_id)
    done = moved.run(days(1, 2))
    assert done is not None
    assert (done.totals.records, done.totals.lost) == (10, 4)
    assert sorted(row["n"] for row in moved.rows().values()) == [*range(10), *range(100, 110)]
    moved.assert_verified()


def on(cluster: TestBroker) -> dict[str, str]:
    """Return the environment with a connection named `old` to this cluster."""
    return {"TALLYSTICK_KAFKA_OLD": cluster.settings.as_env_json()}
