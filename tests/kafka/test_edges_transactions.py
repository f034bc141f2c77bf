"""Transactions at the ends of intervals: aborted, open, across a boundary, and left open by a dead producer."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from support.brokers import TestBroker, send
from support.log_lake import LogLake, at, days, fill, ms, value
from tallystick.errors import NotYet

# A producer in a process of its own: it begins a transaction, prints a line, and never ends it.
OPEN_TRANSACTION = """
import sys
from confluent_kafka import Producer
bootstrap, topic, name, stamp = sys.argv[1:]
producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 900_000})
producer.init_transactions(60)
producer.begin_transaction()
producer.produce(topic, b'{"n": 900}', partition=0, timestamp=int(stamp))
assert producer.flush(60) == 0
print("open", flush=True)
sys.stdin.read()
"""


class Sums(NamedTuple):
    """The account of one interval."""

    records: int
    aborted: int
    control: int


def sums(lake: LogLake, first: float, last: float) -> Sums:
    (account,) = lake.record(days(first, last)).accounts
    assert (account.dead_letters, account.absent, account.lost) == (0, 0, 0)
    return Sums(account.records, account.aborted, account.control)


def transact(
    broker: TestBroker, topic: str, numbers: Sequence[int], *, day: float, abort: bool
) -> None:
    """Produce one transaction, with one time for all of its records."""
    producer = broker.transactions(f"{topic}-{numbers[0]}")
    producer.begin_transaction()
    send(producer, topic, *map(value, numbers), timestamp=ms(at(day)))
    broker.end(producer, topic, abort=abort)


def test_a_range_whose_last_500_records_are_aborted_is_complete(broker: TestBroker) -> None:
    topic = broker.topic()
    lake = LogLake(broker, [topic])
    fill(broker, topic, *range(100), day=0.1)
    transact(broker, topic, range(500), day=0.5, abort=True)
    fill(broker, topic, *range(100, 110), day=1.1)
    lake.run(days(1, 2))
    lake.run(days(0, 1))
    lake.assert_equals_kafka()
    # The abort marker belongs to the first day: the second begins at its first data record.
    assert sums(lake, 0, 1) == (100, 500, 1)
    assert sums(lake, 1, 2) == (10, 0, 0)


def test_a_log_that_ends_with_aborted_records_and_their_marker_is_read_to_its_end(
    broker: TestBroker,
) -> None:
    topic = broker.topic()
    lake = LogLake(broker, [topic])
    fill(broker, topic, 1, 2, day=0.1)
    transact(broker, topic, range(20), day=0.5, abort=True)
    lake.run(days(0, 1))
    assert sums(lake, 0, 1) == (2, 20, 1)
    fill(broker, topic, 3, day=1.1)
    lake.run(days(1, 2))
    lake.assert_equals_kafka()


def test_an_interval_of_only_aborted_records_has_an_account_and_no_row(
    broker: TestBroker,
) -> None:
    topic = broker.topic()
    lake = LogLake(broker, [topic])
    fill(broker, topic, 1, day=0.1)
    transact(broker, topic, range(20), day=1.5, abort=True)
    fill(broker, topic, 2, day=2.1)
    for day in (1, 0, 2):
        lake.run(days(day, day + 1))
    assert sums(lake, 1, 2) == (0, 20, 1)
    assert not lake.record(days(1, 2)).added
    lake.assert_equals_kafka()


def test_of_many_transactions_the_aborted_fifth_gives_no_row(broker: TestBroker) -> None:
    """Input splits of 7 offsets end inside transactions, and between records and markers."""
    topic = broker.topic()
    lake = LogLake(broker, [topic], records_per_task=7)
    producer = broker.transactions(f"{topic}-many")
    for turn in range(20):
        producer.begin_transaction()
        numbers = range(10 * turn, 10 * turn + 5)
        send(producer, topic, *map(value, numbers), timestamp=ms(at(turn / 10)))
        broker.end(producer, topic, abort=turn % 5 == 3)
    for day in (1, 0):
        lake.run(days(day, day + 1))
    lake.assert_equals_kafka()
    accounts = [sums(lake, day, day + 1) for day in (0, 1)]
    assert [sum(each) for each in zip(*accounts, strict=True)] == [80, 20, 20]
    assert len(lake.tasks_run) == 18


def _across(broker: TestBroker, topic: str) -> Producer:
    """Produce records of both days, some plain, some in a transaction. Returns its producer; it is still open."""
    fill(broker, topic, 1, 2, day=0.1)
    producer = broker.transactions(f"{topic}-across")
    producer.begin_transaction()
    for number, day in ((10, 0.5), (11, 1.5)):
        send(producer, topic, value(number), timestamp=ms(at(day)))
        fill(broker, topic, number + 10, day=day)
    return producer


@pytest.mark.parametrize("abort", [False, True], ids=["committed", "aborted"])
def test_a_transaction_across_a_boundary_is_waited_for_and_then_split(
    broker: TestBroker, abort: bool
) -> None:
    topic = broker.topic()
    lake = LogLake(broker, [topic])
    producer = _across(broker, topic)
    for first in (0, 1):  # neither side of the boundary may be planned
        with pytest.raises(NotYet, match=r"the last stable offset at 2: a transaction that began"):
            lake.planned(days(first, first + 1))
    broker.end(producer, topic, abort=abort)
    for first in (0, 1):
        lake.run(days(first, first + 1))
    lake.assert_equals_kafka()
    assert sums(lake, 0, 1) == ((3, 1, 0) if abort else (4, 0, 0))
    assert sums(lake, 1, 2) == ((1, 1, 1) if abort else (2, 0, 1))


def test_every_retry_gets_the_plan_that_was_granted_after_the_wait(broker: TestBroker) -> None:
    """The range does not depend on the time of the read: records produced after the plan are not in it."""
    topic = broker.topic()
    lake = LogLake(broker, [topic])
    producer = _across(broker, topic)
    with pytest.raises(NotYet):
        lake.planned(days(0, 1))
    broker.end(producer, topic)
    first = lake.plan(days(0, 1))
    transact(broker, topic, [70, 71], day=0.7, abort=True)  # late records
    fill(broker, topic, 72, day=0.7)
    again = lake.plan(days(0, 1))
    assert (again.key, again.encode()) == (first.key, first.encode())
    lake.commit(first, lake.stage(first))
    lake.run(days(1, 2))
    lake.assert_equals_kafka()


def test_an_open_transaction_after_an_interval_does_not_block_it(broker: TestBroker) -> None:
    topic = broker.topic()
    lake = LogLake(broker, [topic])
    fill(broker, topic, 1, 2, day=0.1)
    fill(broker, topic, 3, day=1.1)
    producer = broker.transactions(f"{topic}-open")
    producer.begin_transaction()
    send(producer, topic, value(10), timestamp=ms(at(1.5)))
    assert lake.run(days(0, 1)) is not None
    assert {row["n"] for row in lake.rows().values()} == {1, 2}
    broker.end(producer, topic, abort=True)
    lake.run(days(1, 2))
    lake.assert_equals_kafka()


def test_an_open_transaction_of_a_killed_producer_is_an_error_with_a_hint(
    broker: TestBroker,
) -> None:
    """It holds the last stable offset until its timeout: nothing is skipped, and nothing is read beyond it."""
    topic = broker.topic()
    lake = LogLake(broker, [topic])
    fill(broker, topic, 1, day=0.1)
    argv = [sys.executable, "-c", OPEN_TRANSACTION, broker.bootstrap, topic, f"{topic}-dead"]
    process = subprocess.Popen(
        [*argv, str(ms(at(0.5)))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        process.send_signal(signal.SIGKILL)
    fill(broker, topic, 2, day=1.1)
    for _ in ("the plan", "its retry"):
        with pytest.raises(NotYet, match="is still open") as caught:
            lake.planned(days(0, 1))
        assert "kafka-transactions.sh find-hanging" in caught.value.hint
    # The operator aborts the transaction. Here, a producer with the same id fences the dead one.
    before = broker.high_watermark(topic)
    broker.transactions(f"{topic}-dead")
    broker.until_ends_beyond(topic, before)
    lake.run(days(0, 1))
    lake.run(days(1, 2))
    assert {row["n"] for row in lake.rows().values()} == {1, 2}
    lake.assert_equals_kafka()
