"""The broker's list of aborted transactions compared with the markers of the log, answer by answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.kafka_batches import batch, control
from support.kafka_script import TOPIC_ID, Script, answer, numbered
from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import KafkaUnavailable, LogDamaged
from tallystick.format.offsets import OffsetRange
from tallystick.kafka import reader as reader_module
from tallystick.kafka.markers import MarkerCheck
from tallystick.kafka.reader import RangeReader
from tallystick.kafka.wire import AbortedTransaction

Read = Callable[..., tuple[list[int], tuple[int, int, int]]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Read:
    """Read [start, end). Returns the offsets of its records, and the account as (records, aborted, control)."""

    def go(script: Script, start: int, end: int, *, compacted: bool = False) -> Any:
        monkeypatch.setattr(reader_module, "KafkaClient", lambda _settings: script)
        settings = KafkaSettings(bootstrap_servers=("nowhere:1",))
        ours = RangeReader(
            settings, topic="t", topic_id=TOPIC_ID, cluster_id="c", compacted=compacted
        )
        read = ours.read(0, OffsetRange(start=start, end=end))
        offsets = [offset for each in read for offset in each["offset"].to_pylist()]
        account = ours.account
        return offsets, (account.records, account.aborted, account.control)

    return go


def data(start: int, end: int, producer_id: int = 9) -> bytes:
    return numbered(start, end, producer_id=producer_id, transactional=True)


def end(offset: int, *, abort: bool, producer_id: int = 9) -> bytes:
    return control(abort=abort, base=offset, producer_id=producer_id)


def listed(*firsts: tuple[int, int]) -> tuple[AbortedTransaction, ...]:
    return tuple(AbortedTransaction(producer_id=p, first_offset=o) for p, o in firsts)


# ---------------------------------------------------------------- list and log differ


def test_a_transaction_that_was_aborted_and_is_not_listed_is_refused(run: Read) -> None:
    script = Script(answer(data(0, 3), end(3, abort=True)))
    with pytest.raises(
        LogDamaged,
        match=r"'t' partition 0, a transaction of producer id 9: the broker lists its records from offset 0 on as "
        r"committed, the marker at offset 3 is ABORT",
    ) as failed:
        run(script, 0, 4)
    assert "kafka-dump-log.sh" in failed.value.hint


def test_a_transaction_that_was_committed_and_is_listed_as_aborted_is_refused(run: Read) -> None:
    script = Script(answer(data(0, 3), end(3, abort=False), aborted=listed((9, 0))))
    with pytest.raises(LogDamaged, match="as aborted, the marker at offset 3 is COMMIT"):
        run(script, 0, 4)


def test_the_lists_of_two_answers_must_agree(run: Read) -> None:
    """The transaction is in two answers, and only the first lists it."""
    script = Script(
        answer(data(0, 3), aborted=listed((9, 0))), answer(data(3, 6), end(6, abort=True))
    )
    with pytest.raises(LogDamaged, match="at offset 0 as aborted, those at offset 3 as committed"):
        run(script, 0, 7)


def test_a_marker_in_a_later_answer_is_compared_with_the_list_of_the_first(run: Read) -> None:
    script = Script(answer(data(0, 3)), answer(numbered(3, 5), end(5, abort=True)))
    with pytest.raises(LogDamaged, match="marker at offset 5 is ABORT"):
        run(script, 0, 6)


def test_a_marker_after_the_range_is_compared_if_the_last_answer_contains_it(
    run: Read,
) -> None:
    beyond = (data(0, 3), numbered(3, 9), data(9, 10), end(10, abort=True))
    with pytest.raises(LogDamaged, match="marker at offset 10 is ABORT"):
        run(Script(answer(*beyond)), 0, 2)
    assert run(Script(answer(*beyond, aborted=listed((9, 0)))), 0, 2) == ([], (0, 2, 0))


def test_data_of_a_transaction_that_began_before_the_range_are_checked_too(run: Read) -> None:
    script = Script(answer(data(4, 6), end(6, abort=True)))
    with pytest.raises(LogDamaged, match="from offset 4 on as committed"):
        run(script, 5, 7)


def test_one_wrong_entry_among_many_right_ones_is_detected(run: Read) -> None:
    batches: list[bytes] = []
    for turn in range(0, 40, 4):
        batches += [data(turn, turn + 3, 9), end(turn + 3, abort=turn == 20)]
    assert run(Script(answer(*batches, aborted=listed((9, 20)))), 0, 40)[1] == (27, 3, 10)
    with pytest.raises(LogDamaged, match="marker at offset 23 is ABORT"):
        run(Script(answer(*batches)), 0, 40)
    with pytest.raises(LogDamaged, match="marker at offset 27 is COMMIT"):
        run(Script(answer(*batches, aborted=listed((9, 20), (9, 24)))), 0, 40)


# ---------------------------------------------------------------- list and log agree


def test_an_empty_transaction_that_was_aborted_is_never_listed(run: Read) -> None:
    script = Script(answer(numbered(0, 2), end(2, abort=True), end(3, abort=False)))
    assert run(script, 0, 4) == ([0, 1], (2, 0, 2))


def test_a_second_marker_of_one_transaction_is_ignored(run: Read) -> None:
    """The coordinator sends a marker again if its answer was lost."""
    script = Script(answer(data(0, 2), end(2, abort=False), end(3, abort=True)))
    assert run(script, 0, 4) == ([0, 1], (2, 0, 2))


def test_transactions_of_one_producer_follow_each_other(run: Read) -> None:
    script = Script(
        answer(data(0, 2), end(2, abort=True), data(3, 5), aborted=listed((9, 0))),
        answer(end(5, abort=False), data(6, 8), end(8, abort=True), aborted=listed((9, 6))),
    )
    assert run(script, 0, 9) == ([3, 4], (2, 4, 3))


def test_transactions_of_two_producers_overlap(run: Read) -> None:
    script = Script(
        answer(
            data(0, 2, 7),
            data(2, 4, 9),
            end(4, abort=True, producer_id=7),
            data(5, 6, 9),
            end(6, abort=False),
            aborted=listed((7, 0)),
        )
    )
    assert run(script, 0, 7) == ([2, 3, 5], (3, 2, 2))


def test_a_marker_beyond_the_fetched_answers_is_not_searched(run: Read) -> None:
    script = Script(answer(data(0, 3), data(3, 4)))
    assert run(script, 0, 3) == ([0, 1, 2], (3, 0, 0))
    assert script.requested == [0]


def test_batches_emptied_by_compaction_are_not_compared(run: Read) -> None:
    """A data batch without records before another transaction, and a marker of which only the batch remains."""
    emptied = batch(base=0, last_delta=2, producer_id=9, transactional=True)
    script = Script(
        answer(emptied, data(3, 5), end(5, abort=True), numbered(6, 7), aborted=listed((9, 3)))
    )
    assert run(script, 0, 7, compacted=True) == ([6], (1, 2, 1))
    no_marker = batch(base=2, last_delta=0, producer_id=9, transactional=True, flags=0x20)
    script = Script(answer(data(0, 2), no_marker, data(3, 4), end(4, abort=False)))
    assert run(script, 0, 5, compacted=True) == ([0, 1, 3], (3, 0, 1))


def test_records_outside_transactions_are_not_compared_with_markers(run: Read) -> None:
    plain = numbered(0, 2, producer_id=9)
    assert run(Script(answer(plain, end(2, abort=True))), 0, 3) == ([0, 1], (2, 0, 1))


# ---------------------------------------------------------------- mutants


@pytest.mark.parametrize("dropped", ["data", "marker"])
def test_a_reader_without_the_comparison_returns_aborted_records(
    run: Read, monkeypatch: pytest.MonkeyPatch, dropped: str
) -> None:
    """The tests above detect the difference only because of this check."""
    monkeypatch.setattr(MarkerCheck, dropped, lambda *_, **__: None)
    wrong = Script(answer(data(0, 3), end(3, abort=True)))
    assert run(wrong, 0, 4) == ([0, 1, 2], (3, 0, 1))


# ---------------------------------------------------------------- a compacted log that is cleaned while it is read


def cleaned_between(*second: bytes, aborted: tuple[AbortedTransaction, ...] = ()) -> Script:
    """Return data of a committed transaction; then its rest and its marker are gone, and the next one begins."""
    return Script(answer(data(0, 3)), answer(*second, aborted=aborted))


@pytest.mark.parametrize(
    "script",
    [
        lambda: cleaned_between(data(6, 8), end(8, abort=True), aborted=listed((9, 6))),
        lambda: cleaned_between(end(8, abort=True)),
    ],
    ids=["data of the next", "marker of the next"],
)
def test_a_contradiction_across_answers_of_a_compacted_log_can_be_retried(
    run: Read, script: Callable[[], Script]
) -> None:
    with pytest.raises(KafkaUnavailable, match="may have been cleaned between") as caught:
        run(script(), 0, 9, compacted=True)
    assert "run again" in str(caught.value)
    with pytest.raises(LogDamaged):  # nothing is cleaned from a log that is not compacted
        run(script(), 0, 9)


def test_a_contradiction_in_one_answer_of_a_compacted_log_is_refused(run: Read) -> None:
    with pytest.raises(LogDamaged):
        run(Script(answer(data(0, 3), end(3, abort=True))), 0, 4, compacted=True)
