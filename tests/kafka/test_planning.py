"""Identities, ranges and boundaries of topics on a real broker."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from support.brokers import TestBroker, send
from tallystick.errors import IdentityChanged, LogDamaged, NotYet
from tallystick.format.offsets import Position
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.planning import LogPlanner, PartitionState

YEAR_2013 = 1_357_000_000_000
DAY_MS = 86_400_000


@pytest.fixture
def planner(broker: TestBroker) -> Iterator[LogPlanner]:
    with LogPlanner(broker.settings) as opened:
        yield opened


def fill(
    broker: TestBroker, topic: str, *timestamps: int, codec: str = "none", partition: int = 0
) -> None:
    producer = broker.producer(compression_type=codec, linger_ms=200)
    for timestamp in timestamps:
        send(
            producer,
            topic,
            b"%d" % timestamp,
            timestamp=timestamp,
            partition=partition,
            flush=False,
        )
    send(producer, topic)


def transact(broker: TestBroker, topic: str, *timestamps: int, abort: bool = False) -> None:
    tx = broker.transactions(f"{topic}-{timestamps[0]}")
    tx.begin_transaction()
    for timestamp in timestamps:
        send(tx, topic, b"tx", timestamp=timestamp)
    broker.end(tx, topic, abort=abort)


def offsets(found: tuple[Position, ...]) -> list[int]:
    return [position.offset for position in found]


def test_describe_returns_identity_and_range(broker: TestBroker, planner: LogPlanner) -> None:
    plain, compacted = broker.topic(2), broker.topic(cleanup_policy="compact,delete")
    fill(broker, plain, 1, 2, 3, partition=1)
    broker.delete_records(plain, 1, partition=1)
    tx = broker.transactions(f"{plain}-open")
    tx.begin_transaction()
    send(tx, plain, b"open", partition=1)
    found = planner.describe([plain, compacted])
    assert list(found) == [plain, compacted]
    assert found[plain].partitions == (
        PartitionState(log_start=0, high_watermark=0, last_stable=0),
        PartitionState(log_start=1, high_watermark=4, last_stable=3),
    )
    assert (found[plain].compacted, found[compacted].compacted) == (False, True)
    assert found[plain].topic_id != found[compacted].topic_id
    with KafkaClient(broker.settings) as client:
        assert found[plain].cluster_id == client.cluster_id()
    tx.abort_transaction(30)


def test_a_missing_topic_is_named(planner: LogPlanner, broker: TestBroker) -> None:
    with pytest.raises(
        IdentityChanged,
        match=rf"topic 'no-such' does not exist on the cluster at {broker.bootstrap}",
    ):
        planner.describe(["no-such"])


def test_a_misspelt_topic_is_answered_with_similar_names(
    planner: LogPlanner, broker: TestBroker
) -> None:
    broker.topic(name="departures")
    with pytest.raises(IdentityChanged, match="topic 'departurs' does not exist") as missing:
        planner.describe(["departurs"])
    assert missing.value.hint.startswith("did you mean 'departures'? Otherwise check the topic's")


@pytest.mark.parametrize(
    ("config", "kept_ms"),
    [
        ({"retention_ms": 3_600_000}, 3_600_000),
        ({"retention_ms": -1}, None),
        ({"retention_ms": 3_600_000, "cleanup_policy": "compact"}, None),
        ({"retention_ms": 3_600_000, "cleanup_policy": "compact,delete"}, 3_600_000),
    ],
)
def test_retention_is_read_where_the_topic_deletes_by_age(
    planner: LogPlanner, broker: TestBroker, config: dict[str, object], kept_ms: int | None
) -> None:
    assert planner.retention_ms(broker.topic(**config)) == kept_ms


def test_a_boundary_is_the_first_record_at_or_after_the_instant(
    broker: TestBroker, planner: LogPlanner
) -> None:
    topic = broker.topic()
    fill(broker, topic, 1_000, 2_000, 2_000, 3_000)
    for at, offset in ((0, 0), (1_000, 0), (1_001, 1), (2_000, 1), (2_001, 3), (3_000, 3)):
        assert offsets(planner.boundary(topic, at, [0])) == [offset], at


def test_without_a_later_record_the_boundary_is_the_high_watermark(
    broker: TestBroker, planner: LogPlanner
) -> None:
    topic = broker.topic(2)
    fill(broker, topic, 1_000, 2_000)
    assert planner.boundary(topic, 2_001, [0, 0]) == (
        Position(offset=2, leader_epoch=0),
        Position(offset=0, leader_epoch=-1),
    )


def test_transaction_markers_with_the_time_of_the_broker_are_not_records(
    broker: TestBroker, planner: LogPlanner
) -> None:
    """ListOffsets returns the marker at offset 3, which is years younger than its neighbours."""
    topic = broker.topic()
    fill(broker, topic, YEAR_2013, YEAR_2013 + 1_000)
    transact(broker, topic, YEAR_2013 + 2_000)
    fill(broker, topic, YEAR_2013 + 3_000, YEAR_2013 + 4_000)
    with KafkaClient(broker.settings) as client:
        listed = client.list_offsets(client.layout(topic), {0: YEAR_2013 + 2_500}, committed=False)
    assert listed == {0: 3}
    assert offsets(planner.boundary(topic, YEAR_2013 + 2_500, [0])) == [4]
    assert offsets(planner.boundary(topic, YEAR_2013 + 3_001, [0])) == [5]
    assert offsets(planner.boundary(topic, YEAR_2013 + 4_001, [0])) == [6]


def test_after_a_marker_at_the_end_the_boundary_is_the_high_watermark(
    broker: TestBroker, planner: LogPlanner
) -> None:
    topic = broker.topic()
    transact(broker, topic, YEAR_2013)
    assert planner.boundary(topic, YEAR_2013 + 1, [0]) == (Position(offset=2, leader_epoch=0),)


def test_aborted_records_count_for_boundaries(broker: TestBroker, planner: LogPlanner) -> None:
    topic = broker.topic()
    fill(broker, topic, 1_000)
    transact(broker, topic, 5_000, abort=True)
    fill(broker, topic, 6_000)
    assert offsets(planner.boundary(topic, 4_000, [0])) == [1]


def test_a_boundary_among_out_of_order_timestamps_is_the_first_late_record(
    broker: TestBroker, planner: LogPlanner
) -> None:
    topic = broker.topic()
    fill(broker, topic, 1_000, 5_000, 2_000, 6_000, 3_000)
    assert offsets(planner.boundary(topic, 3_000, [0])) == [1]
    assert offsets(planner.boundary(topic, 3_000, [2])) == [3]
    assert offsets(planner.boundary(topic, 3_000, [4])) == [4]
    assert offsets(planner.boundary(topic, 5_500, [4])) == [5]


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_a_boundary_can_be_inside_a_batch(
    broker: TestBroker, planner: LogPlanner, codec: str
) -> None:
    topic = broker.topic()
    fill(broker, topic, *range(1_000, 1_500), codec=codec)
    assert planner.boundary(topic, 1_321, [0]) == (Position(offset=321, leader_epoch=0),)


def test_boundaries_follow_append_time_if_the_topic_has_it(
    broker: TestBroker, planner: LogPlanner
) -> None:
    topic = broker.topic(message_timestamp_type="LogAppendTime")
    before = time.time_ns() // 1_000_000
    fill(broker, topic, 1_000, 2_000)
    assert offsets(planner.boundary(topic, before, [0])) == [0]
    assert offsets(planner.boundary(topic, before + 3_600_000, [0])) == [2]


def test_partitions_without_a_lower_limit_start_at_their_log_start(
    broker: TestBroker, planner: LogPlanner
) -> None:
    topic = broker.topic(2)
    fill(broker, topic, 1_000, 2_000, 3_000)
    fill(broker, topic, 1_000, 2_000, 3_000, partition=1)
    broker.delete_records(topic, 2, partition=1)
    found = planner.boundary(topic, 500, [1])
    # Nothing before the second position is in the log, so its epoch is unknown.
    assert found == (Position(offset=1, leader_epoch=0), Position(offset=2, leader_epoch=-1))


def test_a_timestamp_from_the_future_does_not_change_later_boundaries(
    broker: TestBroker, planner: LogPlanner
) -> None:
    """ListOffsets answers with the record in microseconds for every later instant."""
    # A broker before 4.0 accepts this record by default (KIP-937).
    topic = broker.topic(message_timestamp_after_max_ms=2**63 - 1)
    future = (YEAR_2013 + 2_000) * 1_000
    fill(broker, topic, YEAR_2013, YEAR_2013 + 1_000, future, YEAR_2013 + 3_000, YEAR_2013 + 4_000)
    for at, offset in ((1, 1), (1_001, 3), (3_500, 4), (4_001, 5)):
        found = planner.boundary(topic, YEAR_2013 + at, [0], latest_ms=YEAR_2013 + 3_600_000)
        assert offsets(found) == [offset], at
    assert offsets(planner.boundary(topic, YEAR_2013 + 4_001, [0])) == [2]


def test_positions_with_no_record_before_them_are_unproven(
    broker: TestBroker, planner: LogPlanner
) -> None:
    """Partition 0 begins with a marker, 1 with a record, 2 lost nothing, 3 lost everything."""
    topic = broker.topic(4)
    transact(broker, topic, 1_000)  # offset 0, its marker is 1
    fill(broker, topic, 3_000)
    fill(broker, topic, 1_000, 2_000, 3_000, partition=1)
    fill(broker, topic, 1_000, partition=2)
    fill(broker, topic, 1_000, 2_000, partition=3)
    for partition, before in ((0, 1), (1, 1), (3, -1)):
        broker.delete_records(topic, before, partition=partition)
    here = [Position(offset=o) for o in (2, 2, 0, 2)]
    assert planner.unproven(topic, here, 2_500) == {0: 1, 1: 1, 3: 2}


def test_a_few_late_records_do_not_prove_the_start_of_a_log(
    broker: TestBroker, planner: LogPlanner
) -> None:
    """Each record is a batch: ten before the split prove it, nine do not; two are enough if they are a day older."""
    split = YEAR_2013 + 2 * DAY_MS
    for before, proven in (
        ([split - 1] * 9, False),
        ([split - 1] * 10, True),
        ([split - DAY_MS], False),
        ([split - DAY_MS] * 2, True),
        ([split - DAY_MS + 1] * 2, False),
        ([split - 1, split - 2 * DAY_MS, split - 1, split - DAY_MS], True),
    ):
        topic = broker.topic()
        for stamp in (split + 5, *before, split + 7):
            fill(broker, topic, stamp)
        broker.delete_records(topic, 1)  # a record after the split
        (at_split,) = planner.boundary(topic, split, [])
        assert at_split.offset == 1 + len(before)
        assert planner.unproven(topic, [at_split], split) == ({} if proven else {0: 1}), before
    # A batch that contains the split, too, proves nothing about the records before it.
    topic = broker.topic()
    fill(broker, topic, split + 5)
    fill(broker, topic, *[split - DAY_MS] * 20, split)
    broker.delete_records(topic, 1)
    assert planner.unproven(topic, planner.boundary(topic, split, []), split) == {0: 1}


def test_an_open_transaction_before_the_boundary_is_not_yet(
    broker: TestBroker, planner: LogPlanner
) -> None:
    topic = broker.topic()
    fill(broker, topic, 1_000)
    tx = broker.transactions(f"{topic}-open")
    tx.begin_transaction()
    send(tx, topic, b"open", timestamp=2_000)
    fill(broker, topic, 3_000)
    assert offsets(planner.boundary(topic, 1_500, [0])) == [1]
    with pytest.raises(
        NotYet,
        match=r"partition 0: the boundary is at offset 2, the last stable offset at 1: a transac",
    ):
        planner.boundary(topic, 2_500, [0])
    broker.end(tx, topic)
    assert offsets(planner.boundary(topic, 2_500, [0])) == [2]


def test_a_lower_limit_beyond_the_log_is_truncation(
    broker: TestBroker, planner: LogPlanner
) -> None:
    topic = broker.topic()
    fill(broker, topic, 1_000)
    with pytest.raises(
        LogDamaged, match="expected the log to reach boundary 7, found its end at offset 1"
    ):
        planner.boundary(topic, 1_000, [7])


def test_an_instant_with_a_special_meaning_in_kafka_is_refused(planner: LogPlanner) -> None:
    with pytest.raises(ValueError, match="expected 1970 or later, found -1 ms"):
        planner.boundary("any", -1, [])


def test_a_topic_recreated_during_planning_is_refused(
    broker: TestBroker, planner: LogPlanner
) -> None:
    topic = broker.topic()
    described = planner.describe([topic])[topic]
    broker.delete_topic(topic)
    broker.topic(name=topic)
    for call in (lambda: planner.boundary(topic, 0, [0]), lambda: planner.describe([topic])):
        with pytest.raises(
            IdentityChanged, match=f"created again: expected id {described.topic_id}"
        ):
            call()


def test_boundaries_of_random_logs_equal_those_of_a_plain_search(
    broker: TestBroker, planner: LogPlanner
) -> None:
    topic = broker.topic()
    rng = random.Random(5)
    log: list[int | None] = []  # timestamp per offset, None for a marker
    for turn in range(12):
        stamps = [YEAR_2013 + rng.randrange(40) * 100 for _ in range(rng.randrange(1, 15))]
        if rng.random() < 0.4:
            stamps = stamps[:1] + sorted(stamps[1:])
            transact(broker, topic, *(stamp * 1 for stamp in stamps), abort=bool(turn % 2))
            log += [*stamps, None]
        else:
            fill(broker, topic, *stamps, codec=rng.choice(["none", "lz4", "zstd"]))
            log += stamps
    for _ in range(60):
        at, lowest = YEAR_2013 + rng.randrange(-100, 4_200), rng.randrange(len(log) + 1)
        late = [
            o for o, stamp in enumerate(log) if o >= lowest and stamp is not None and stamp >= at
        ]
        with KafkaClient(broker.settings) as client:
            answer = client.list_offsets(client.layout(topic), {0: at}, committed=False)[0]
        # The rule has two lower limits: the answer of ListOffsets, and the given one.
        late = [o for o in late if o >= answer]
        expected = late[0] if late and answer >= 0 else len(log)
        assert offsets(planner.boundary(topic, at, [lowest])) == [expected], (at, lowest)


def test_positions_on_the_same_log_do_not_diverge(broker: TestBroker, planner: LogPlanner) -> None:
    topic = broker.topic(2)
    fill(broker, topic, 1, 2, 3)
    here = [Position(offset=2, leader_epoch=0), Position(offset=0)]
    assert planner.diverged(topic, here) == []
    broker.delete_records(topic, 3)
    assert planner.diverged(topic, here) == []


def test_positions_beyond_an_epochs_end_or_of_no_epoch_diverge(
    broker: TestBroker, planner: LogPlanner
) -> None:
    topic = broker.topic()
    fill(broker, topic, 1, 2, 3)
    (message,) = planner.diverged(topic, [Position(offset=9, leader_epoch=0)])
    assert (
        "record before offset 9 was of leader epoch 0, but the leader reports that epoch 0 ends at 3"
        in message
    )
    (message,) = planner.diverged(topic, [Position(offset=2, leader_epoch=4)])
    assert "truncated and written again" in message
    with pytest.raises(
        IdentityChanged, match="expected at least 2 partitions, as in the ledger, found 1"
    ):
        planner.diverged(topic, [Position(offset=0), Position(offset=2, leader_epoch=0)])
