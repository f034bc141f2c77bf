"""Each offset has one class, and the classes sum to the range."""

from __future__ import annotations

import pytest

from support.kafka_batches import Sent, batch, control
from tallystick.errors import LogDamaged
from tallystick.format.offsets import OffsetRange
from tallystick.kafka.accounting import AbortedProducers, ReadAccount, Tally
from tallystick.kafka.batches import Batch, walk
from tallystick.kafka.wire import AbortedTransaction


def batch_of(raw: bytes) -> Batch:
    (found,) = walk(raw, place="t[0]")
    return found


def tally(start: int, end: int, *, compacted: bool = False) -> Tally:
    return Tally(
        OffsetRange(start=start, end=end), place="topic 't' partition 0", compacted=compacted
    )


def test_an_account_that_does_not_add_up_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"expected 4 offsets of .*, found 1 records \+ 2 aborted \+ 0 control \+ 0 absent",
    ):
        ReadAccount(span=OffsetRange(start=0, end=4), records=1, aborted=2, control=0, absent=0)
    with pytest.raises(ValueError, match="expected 1 offsets"):
        ReadAccount(span=OffsetRange(start=0, end=1), records=2, aborted=-1, control=0, absent=0)


def test_there_is_no_account_before_the_end() -> None:
    under_way = tally(0, 5)
    under_way.pass_batch(batch_of(batch(Sent(), Sent())), records=2)
    with pytest.raises(ValueError, match="expected 5 offsets"):
        under_way.account()


def test_a_gap_between_batches_is_damage_unless_compacted() -> None:
    second = batch_of(batch(Sent(), base=3))
    with pytest.raises(
        LogDamaged, match=r"'t' partition 0 has no records at 3 of the offsets \[0, 3\)"
    ):
        tally(0, 4).pass_batch(second, records=1)
    compacted = tally(0, 4, compacted=True)
    compacted.pass_batch(second, records=1)
    assert compacted.account() == ReadAccount(
        span=OffsetRange(start=0, end=4), records=1, aborted=0, control=0, absent=3
    )


def test_the_hint_for_a_gap_deletes_nothing() -> None:
    with pytest.raises(LogDamaged) as caught:
        tally(0, 4).skip_to(3)
    advice = caught.value.hint
    assert "leave the topic's configuration as it is" in advice
    for destructive in ("cleanup.policy", "compact,delete", "retention.", "expire"):
        assert destructive not in advice


def test_a_gap_inside_a_batch_is_damage_unless_compacted() -> None:
    sparse = batch_of(batch(Sent(delta=1), last_delta=4))
    with pytest.raises(LogDamaged, match=r"has no records at 4 of the offsets \[0, 5\)"):
        tally(0, 5).pass_batch(sparse, records=1)
    compacted = tally(0, 5, compacted=True)
    compacted.pass_batch(sparse, records=1)
    assert compacted.account().absent == 4


def test_more_records_than_offsets_is_damage_even_if_compacted() -> None:
    with pytest.raises(LogDamaged, match="has no records at -1"):
        tally(0, 9, compacted=True).pass_batch(batch_of(batch(Sent())), records=2)


def test_offsets_outside_the_span_are_not_counted() -> None:
    part = tally(2, 4)
    part.pass_batch(batch_of(batch(*[Sent()] * 10)), records=2)
    assert part.done
    assert part.account().records == 2


def transactional(base: int, producer_id: int) -> Batch:
    return batch_of(batch(Sent(), Sent(), base=base, producer_id=producer_id, transactional=True))


def test_a_producer_is_aborted_from_its_first_offset_to_its_marker() -> None:
    producers = AbortedProducers([AbortedTransaction(producer_id=7, first_offset=2)])
    assert not producers.aborts(transactional(0, 7))
    assert producers.aborts(transactional(2, 7))
    assert not producers.aborts(transactional(4, 8))
    producers.abort_marker(batch_of(control(abort=True, base=6, producer_id=7)))
    assert not producers.aborts(transactional(7, 7))


def test_records_outside_transactions_are_never_aborted() -> None:
    producers = AbortedProducers([AbortedTransaction(producer_id=7, first_offset=0)])
    assert not producers.aborts(batch_of(batch(Sent(), base=1, producer_id=7)))
    assert producers.aborts(transactional(2, 7))
