"""Several brokers: planning asks all leaders, reading follows one that moves, and takes a replica that is nearer.

And no run goes on over a log that an unclean election has rewritten.
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
    """What is asked of whom, in order."""
    sent: list[FetchOrder] = []
    fetch = KafkaClient.fetch

    def noted(client: KafkaClient, order: FetchOrder) -> PendingFetch:
        sent.append(order)
        return fetch(client, order)

    monkeypatch.setattr(KafkaClient, "fetch", noted)
    return sent


def settings(cluster: TestBroker, **words: Any) -> KafkaSettings:
    return KafkaSettings(
        bootstrap_servers=tuple(cluster.bootstrap.split(",")),
        bootstrap_timeout_ms=20_000,
        request_timeout_ms=20_000,
        **words,
    )


def nodes(cluster: TestBroker) -> KafkaCluster:
    assert isinstance(cluster.kafka, KafkaCluster)
    return cluster.kafka


def reader(cluster: TestBroker, topic: str, **how: Any) -> RangeReader:
    asked = settings(cluster, **({"client_rack": rack} if (rack := how.pop("rack", None)) else {}))
    with KafkaClient(asked) as client:
        topic_id, cluster_id = client.layout(topic).topic_id, client.cluster_id()
    return RangeReader(
        asked,
        topic=topic,
        topic_id=topic_id,
        cluster_id=cluster_id,
        compacted=False,
        fetch_bytes_max=how.pop("fetch_bytes_max", 4 << 10),
    )


def leader_of(cluster: TestBroker, topic: str) -> int:
    with KafkaClient(settings(cluster)) as client:
        return client.layout(topic).leaders[0].node_id


def in_sync(cluster: TestBroker, topic: str) -> bool:
    found = cluster.admin.list_topics(topic, timeout=5).topics[topic].partitions.values()
    return all(len(one.isrs) == NODES for one in found)


def filled(cluster: TestBroker, records: int) -> str:
    """A topic on all three brokers whose replicas are all in step."""
    topic = cluster.topic(replicas=NODES, min_insync_replicas=2)
    producer = cluster.producer(batch_num_messages=20)
    send(producer, topic, *(b"%d" % n * 50 for n in range(records)), timestamp=1_000)
    # With this one, every follower learns that those before it are settled.
    send(producer, topic, b"one more", timestamp=1_000)
    wait_until(lambda: in_sync(cluster, topic), deadline_s=MOVED_S, what="three replicas in step")
    return topic


def test_planning_asks_every_leader(cluster: TestBroker) -> None:
    topic = cluster.topic(6)
    for partition in range(6):
        send(cluster.producer(), topic, *(b"x",) * partition, partition=partition, timestamp=1_000)
    with LogPlanner(settings(cluster)) as planner:
        seen = planner.describe([topic])[topic]
        found = planner.boundary(topic, 2_000, [0] * 6)
    with KafkaClient(settings(cluster)) as client:
        assert len({one.node_id for one in client.layout(topic).leaders}) > 1
    assert [p.high_watermark for p in seen.partitions] == [0, 1, 2, 3, 4, 5]
    assert [one.offset for one in found] == [0, 1, 2, 3, 4, 5]


def test_reading_goes_on_at_the_new_leader(cluster: TestBroker) -> None:
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


@pytest.mark.parametrize("rack", [1, 2, 3])
def test_the_replica_of_ones_own_rack_is_read(
    cluster: TestBroker, orders: list[FetchOrder], rack: int
) -> None:
    topic = filled(cluster, 400)
    ours = reader(cluster, topic, rack=f"rack-{rack}")
    read = ours.read(0, OffsetRange(start=0, end=400))
    assert [o for batch in read for o in batch["offset"].to_pylist()] == list(range(400))
    assert ours.account.records == 400
    asked = {order.replica for order in orders[1:]}
    assert asked == ({None} if leader_of(cluster, topic) == rack else {rack})


def test_a_replica_that_dies_is_left_for_the_leader(
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


def test_a_rack_where_nobody_is_reads_from_the_leader(
    cluster: TestBroker, orders: list[FetchOrder]
) -> None:
    topic = filled(cluster, 100)
    read = reader(cluster, topic, rack="elsewhere").read(0, OffsetRange(start=0, end=100))
    assert sum(batch.num_rows for batch in read) == 100
    assert {order.replica for order in orders} == {None}


# ---------------------------------------------------------------- an unclean election (last: it leaves a broker dead)


@pytest.mark.parametrize("when", MOMENTS)
def test_a_log_that_is_rewritten_before_its_read_ends_is_not_staged(
    rewritten: dict[str, Case], when: str
) -> None:
    case = rewritten[when]
    assert case.staging is not None
    assert case.plan is not None
    said = rf"the record before offset {KEPT + LOST} was of leader epoch \d+, .* ends at {KEPT}"
    with pytest.raises(LogDamaged, match=said) as told:
        case.staging.result(2 * MOVED_S)
    assert "unclean leader election" in told.value.hint
    assert "A new plan stops too" in told.value.hint
    # Offsets and counts fit, so the same plan would be staged at once by who looks at nothing else.
    case.lake.assert_refused(LogDamaged, "written anew", run=lambda: case.lake.stage(case.plan))
    case.lake.assert_refused(
        LogDamaged,
        "no longer holds the history that the boundary at 2013-01-03",
        run=lambda: case.lake.planned(SECOND, clear=1),
    )
    assert case.numbers == list(range(KEPT))
    case.lake.assert_verified()


def test_what_was_lost_before_it_was_planned_is_no_part_of_any_plan(
    rewritten: dict[str, Case],
) -> None:
    """The cluster lost what it had acknowledged; the boundary behind it holds, and the new records are the day's."""
    lake = rewritten["before the plan"].lake
    lake.run(SECOND)
    lake.assert_equals_kafka()
    assert rewritten["before the plan"].numbers == [*range(KEPT), *OTHERS]


def test_what_was_read_before_the_log_was_rewritten_is_committed_and_the_next_plan_stops(
    rewritten: dict[str, Case],
) -> None:
    """The rows are what the cluster acknowledged, at the epoch that the plan names; nothing else holds them any more."""
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


def test_the_way_on_from_a_rewritten_log_is_a_topic_created_anew_that_is_adopted(
    cluster: TestBroker, rewritten: dict[str, Case]
) -> None:
    """What was read stays, what the new history holds instead goes into a new incarnation: each is there once."""
    case = rewritten["before the commit"]
    assert case.plan is not None
    assert case.report is not None
    case.lake.commit(case.plan, case.report)  # as the test above did, if it ran
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


def test_what_is_committed_of_a_rewritten_log_is_not_replaced(rewritten: dict[str, Case]) -> None:
    case = rewritten["after the commit"]
    again = changed(case.lake)
    case.lake.assert_refused(
        LogDamaged, "written anew", run=lambda: case.lake.planned(SECOND, **again)
    )
    case.lake.assert_refused(LogDamaged, "written anew", run=lambda: case.lake.planned(days(2, 3)))
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
    elsewhere = replace(case.lake, settings=broker.settings)
    elsewhere.lake = case.lake.lake
    for run in (lambda: elsewhere.planned(days(2, 3)), lambda: elsewhere.stage(plan)):
        error = elsewhere.assert_refused(IdentityChanged, plan.topics[0].cluster_id, run=run)
        assert "cluster" in str(error)


def test_a_topic_on_another_cluster_is_adopted_where_the_old_one_was_read_to_its_end(
    broker: TestBroker, cluster: TestBroker
) -> None:
    topic = cluster.topic()
    fill(cluster, topic, *range(10), day=0.5)
    lake = LogLake(cluster, [topic])
    lake.run(days(0, 1))
    fill(cluster, topic, *range(10, 14), day=1.5)  # nobody reads these
    broker.topic(name=topic, partitions=2)
    fill(broker, topic, *range(100, 110), day=1.5, partition=1)
    moved = replace(lake, settings=broker.settings)
    moved.lake = lake.lake
    moved.assert_refused(
        IdentityChanged, "tally topic adopt", run=lambda: moved.planned(days(1, 2))
    )
    ends = ends_on(lake.lake.load_existing().root, topic, "old", environ=on(cluster))
    assert ends == {0: 14}
    with pytest.raises(IdentityChanged, match="connection old leads to topic"):
        ends_on(lake.lake.load_existing().root, topic, "old", environ=on(broker))
    with LogPlanner(broker.settings) as log:
        state = log.describe([topic])[topic]
    adopt(lake.lake, topic, lambda: state, ends_of=lambda _: ends, confirmed_id=state.topic_id)
    done = moved.run(days(1, 2))
    assert done is not None
    assert (done.totals.records, done.totals.lost) == (10, 4)
    assert sorted(row["n"] for row in moved.rows().values()) == [*range(10), *range(100, 110)]
    moved.assert_verified()


def on(where: TestBroker) -> dict[str, str]:
    """A connection named `old` that leads there."""
    return {"TALLYSTICK_KAFKA_OLD": where.settings.as_env_json()}
