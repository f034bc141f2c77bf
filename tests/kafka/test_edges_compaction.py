"""Compaction before, between and after the reads of one plan, and the gaps of every kind of topic."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.brokers import TestBroker, read_while_cleaning, send
from support.log_lake import LogLake, at, changed, consumed, days, decoded, ms, value
from tallystick.errors import LogDamaged, ReportRejected
from tallystick.format.plan import Plan
from tallystick_devstack.process import wait_until

COMPACTION: dict[str, object] = {
    "segment_ms": 100,
    "min_cleanable_dirty_ratio": 0.001,
    "delete_retention_ms": 100,
}
DAY_1 = days(0, 1)
RECORDS, KEYS = 40, 4


def filled(broker: TestBroker, policy: str, *, transactions: bool = False) -> tuple[str, LogLake]:
    """Produce forty records of four keys, the last of each a tombstone, and optionally transactions of other keys."""
    topic = broker.topic(cleanup_policy=policy, **(COMPACTION if "compact" in policy else {}))
    plain = broker.producer()
    tx = broker.transactions(f"{topic}-tx") if transactions else None
    for number in range(RECORDS):
        body = value(number) if number < RECORDS - KEYS else None
        key = b"k%d" % (number % KEYS)
        send(plain, topic, body, key=key, timestamp=ms(at(0.5)), flush=number % 10 == 9)
        if tx is not None and number % 10 == 9:
            tx.begin_transaction()
            send(tx, topic, value(100), value(101), key=b"tx", timestamp=ms(at(0.5)))
            broker.end(tx, topic, abort=number == 19)
    topics = [decoded(topic, tombstones="keep")]
    return topic, LogLake(broker, topics, records_per_task=15)


def wait_for_compaction(broker: TestBroker, topic: str) -> None:
    """Wait until the cleaner has removed a record of the first day."""
    producer, before = broker.producer(), len(offsets(broker, topic))

    def is_removed() -> bool:
        # The cleaner ignores the active segment. Segments roll by the times of records; a marker has the current time.
        send(producer, topic, value(999), key=b"roll")
        return len(offsets(broker, topic)) < before

    wait_until(
        is_removed, deadline_s=60, what=f"the cleaner removing records of {topic}", poll_s=0.2
    )


def offsets(broker: TestBroker, topic: str) -> list[int]:
    """Return the offsets of the records of the first day, read by the reference consumer."""
    return sorted(
        o for (_, _, o), (stamp, _) in consumed(broker, topic).items() if stamp < ms(at(1))
    )


def staged(lake: LogLake, plan: Plan) -> tuple[str, list[int]]:
    """Stage one attempt. Returns the key of its report, and the offsets in its files."""
    key = lake.stage(plan)
    report = lake.lake.report(key)
    assert report is not None
    found: list[int] = []
    for file in report.files:
        stored = lake.lake.store.get(file.key)
        assert stored is not None
        found += pq.read_table(pa.BufferReader(stored.body))["_offset"].to_pylist()
    return key, sorted(found)


def staged_as_consumed(broker: TestBroker, lake: LogLake, plan: Plan, topic: str) -> str:
    """Stage until an attempt read the same offsets as the reference consumer, while the cleaner runs."""
    attempts: list[str] = []

    def attempt() -> list[int]:
        key, found = staged(lake, plan)
        attempts.append(key)
        return found

    found, expected = read_while_cleaning(attempt, lambda: offsets(broker, topic))
    assert found == expected
    return attempts[-1]


@pytest.mark.parametrize("transactions", [False, True], ids=["plain", "transactional"])
@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
def test_each_gap_of_a_log_has_its_class(
    broker: TestBroker, policy: str, transactions: bool
) -> None:
    """Markers, aborted and compacted records: rows and gaps are the range, and the rows are those of the reference."""
    topic, lake = filled(broker, policy, transactions=transactions)
    plan = lake.plan(DAY_1)
    if "compact" in policy:
        wait_for_compaction(broker, topic)
    lake.commit(plan, staged_as_consumed(broker, lake, plan, topic))
    (account,) = lake.record(DAY_1).accounts
    assert (account.end, account.records) == (52 if transactions else 40, len(lake.rows()))
    if policy == "delete":
        assert account.absent == 0
        assert (account.aborted, account.control) == ((2, 4) if transactions else (0, 0))
        lake.assert_equals_kafka(topic)
    else:
        assert account.absent > 0
        lake.assert_verified()


def test_a_topic_compacted_between_two_attempts_is_committed_as_the_last_attempt_read_it(
    broker: TestBroker,
) -> None:
    topic, lake = filled(broker, "compact")
    plan = lake.plan(DAY_1)
    _, first = staged(lake, plan)  # its report is lost: the retry correctly finds fewer records
    assert first == list(range(RECORDS))
    wait_for_compaction(broker, topic)
    assert lake.plan(DAY_1).encode() == plan.encode()
    done = lake.commit(plan, staged_as_consumed(broker, lake, plan, topic))
    assert done.totals.absent == RECORDS - done.totals.records > 0
    lake.assert_verified()


def test_a_replacement_after_compaction_is_refused_unless_it_is_accepted(
    broker: TestBroker,
) -> None:
    """The first committed generation remains: it is not wrong because the log has fewer records now."""
    topic, lake = filled(broker, "compact")
    lake.run(DAY_1)
    assert len(lake.rows()) == RECORDS
    wait_for_compaction(broker, topic)
    plan = lake.plan(DAY_1, **changed(lake))
    report = lake.stage(plan)
    with pytest.raises(
        ReportRejected, match=r"expected at least 40 records .* found \d+ in the replacement"
    ) as caught:
        lake.commit(plan, report)
    assert "accept_compaction=true" in caught.value.hint
    assert len(lake.rows()) == RECORDS
    lake.assert_verified()
    done = lake.run(DAY_1, run="by hand", mode="replace", accept_compaction=True)
    assert done is not None
    assert done.totals.absent == RECORDS - done.totals.records > 0
    assert len(lake.rows()) == done.totals.records
    lake.assert_verified()


def test_a_topic_that_became_compacted_after_its_plan_is_damage_for_that_plan(
    broker: TestBroker,
) -> None:
    """The plan expects every offset: records removed since are damage for it, and absent for a new plan."""
    topic, lake = filled(broker, "delete")
    plan = lake.plan(DAY_1)
    broker.configure(topic, cleanup_policy="compact", **COMPACTION)
    wait_for_compaction(broker, topic)
    lake.assert_refused(LogDamaged, "and the topic is not compacted", run=lambda: lake.stage(plan))
    done = lake.run(DAY_1, clear=1)
    assert done is not None
    assert done.totals.absent == RECORDS - done.totals.records > 0
    lake.assert_verified()
