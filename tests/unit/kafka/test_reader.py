"""A reader with answers that a healthy broker does not give on demand, from a scripted client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka import errors as kerrors
from support.kafka_batches import Sent, batch, control
from support.kafka_script import TOPIC_ID, Answer, Script, answer, numbered
from tallystick.connections.kafka import KafkaSettings
from tallystick.engine.input_splits import InputSplit
from tallystick.engine.kafka_splits import KafkaReading
from tallystick.errors import (
    KafkaUnavailable,
    LogDamaged,
    NotYet,
    OutsideRetention,
    SettingsError,
)
from tallystick.format.offsets import OffsetRange, Position
from tallystick.format.plan import PlannedRange, PlannedTopic
from tallystick.kafka import reader as reader_module
from tallystick.kafka.connection import RetriableError
from tallystick.kafka.reader import RangeReader
from tallystick.kafka.wire import (
    NO_EPOCH,
    AbortedTransaction,
    EpochEnd,
)


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., tuple[list[bytes], tuple[int, int, int, int]]]:
    """Read [start, end) of a script. Returns the values, and the account as (records, aborted, control, absent)."""

    def go(
        script: Script,
        start: int,
        end: int,
        *,
        compacted: bool = False,
        epoch: int = -1,
        planned_end: Position | None = None,
        rack: str | None = None,
    ) -> Any:
        monkeypatch.setattr(reader_module, "KafkaClient", lambda _settings: script)
        ours = RangeReader(
            KafkaSettings(bootstrap_servers=("nowhere:1",), client_rack=rack),
            topic="t",
            topic_id=TOPIC_ID,
            cluster_id="c",
            compacted=compacted,
        )
        span = OffsetRange(start=start, end=end)
        batches = ours.read(0, span, leader_epoch=epoch, planned_end=planned_end)
        values = [value for each in batches for value in each["value"].to_pylist()]
        account = ours.account
        return values, (account.records, account.aborted, account.control, account.absent)

    return go


def at(offset: int, epoch: int) -> Position:
    return Position(offset=offset, leader_epoch=epoch)


def values(*spans: tuple[int, int]) -> list[bytes]:
    return [b"%d" % i for start, end in spans for i in range(start, end)]


@pytest.mark.parametrize(
    "error",
    [
        kerrors.NotLeaderForPartitionError,
        kerrors.UnknownTopicIdError,
        kerrors.InconsistentTopicIdError,
        kerrors.UnknownTopicOrPartitionError,
        kerrors.FencedLeaderEpochError,
        kerrors.UnknownLeaderEpochError,
        kerrors.OffsetNotAvailableError,
        kerrors.KafkaStorageError,
        kerrors.ReplicaNotAvailableError,
    ],
)
def test_temporary_errors_are_retried(run: Any, error: type[Exception]) -> None:
    script = Script(answer(numbered(0, 3)), answer(error=error), answer(numbered(3, 5)))
    assert run(script, 0, 5) == (values((0, 5)), (5, 0, 0, 0))
    assert script.requested == [0, 3, 3]


def test_the_first_fetch_of_a_range_requests_a_quarter_of_the_bytes(run: Any) -> None:
    """What follows the range in the log is received for nothing."""
    first = answer(error=kerrors.NotLeaderForPartitionError), answer(numbered(0, 3))
    script = Script(*first, answer(numbered(3, 5)), answer(numbered(5, 6)))
    assert run(script, 0, 6)[0] == values((0, 6))
    assert [order.bytes_max >> 20 for order in script.orders] == [2, 2, 8, 8]


def test_a_lost_connection_is_retried(run: Any) -> None:
    script = Script(RetriableError("gone"), answer(numbered(0, 3)))
    assert run(script, 0, 3)[0] == values((0, 3))


def test_an_error_that_does_not_pass_ends_with_the_reason(run: Any) -> None:
    moving = [answer(error=kerrors.NotLeaderForPartitionError)] * 1_000_000
    with pytest.raises(
        KafkaUnavailable,
        match=r"nowhere:1 did not return topic 't' partition 0 from offset 0: .*NotLeader",
    ):
        run(Script(*moving), 0, 3)


def test_a_corrupt_log_is_damage(run: Any) -> None:
    with pytest.raises(
        LogDamaged,
        match="'t' partition 0 is damaged: its leader reports that the log is corrupt at offset 2",
    ):
        run(Script(answer(error=kerrors.CorruptRecordError)), 2, 3)


def test_a_forbidden_topic_is_a_settings_error(run: Any) -> None:
    with pytest.raises(SettingsError, match=r"does not allow this: .*'t' partition 0.*grant READ"):
        run(Script(answer(error=kerrors.TopicAuthorizationFailedError)), 0, 3)


def test_a_log_start_beyond_the_position_is_outside_retention(run: Any) -> None:
    script = Script(answer(numbered(0, 2)), answer(numbered(2, 5), log_start=3))
    with pytest.raises(
        OutsideRetention,
        match=r"expected offsets \[0, 5\), of which those from 2 on are unread, found .*begins at 3",
    ):
        run(script, 0, 5)


def test_a_log_start_before_the_position_is_harmless(run: Any) -> None:
    script = Script(answer(numbered(0, 2)), answer(numbered(2, 5), log_start=1))
    assert run(script, 0, 5)[0] == values((0, 5))


def test_a_new_leader_must_have_the_records_that_were_read(run: Any) -> None:
    moved = [
        answer(numbered(0, 3, epoch=4)),
        answer(error=kerrors.FencedLeaderEpochError),
        answer(numbered(3, 5, epoch=5)),
    ]
    unchanged = Script(*moved, epochs=(4, 5), ends={4: EpochEnd(epoch=4, end_offset=3)})
    assert run(unchanged, 0, 5)[0] == values((0, 5))
    lost = Script(*moved, epochs=(4, 5), ends={4: EpochEnd(epoch=4, end_offset=2)})
    with pytest.raises(
        LogDamaged,
        match="record before offset 3 was of leader epoch 4, but the leader reports that epoch 4 e",
    ):
        run(lost, 0, 5)


def test_a_log_that_was_rewritten_below_the_planned_end_is_damage(run: Any) -> None:
    """Planned up to 6 in epoch 3. An unclean election then ended epoch 3 at 3, and epoch 4 wrote the rest again."""
    rewritten = answer(numbered(1, 3, epoch=3), numbered(3, 6, epoch=4))
    ends = {3: EpochEnd(epoch=3, end_offset=3)}
    message = "record before offset 6 was of leader epoch 3, but the leader reports that epoch 3 ends at 3"
    with pytest.raises(LogDamaged, match=message):
        run(Script(rewritten, ends=ends), 1, 6, epoch=3, planned_end=at(6, 3))
    grown = {3: EpochEnd(epoch=3, end_offset=6)}
    planned = answer(numbered(1, 6, epoch=3), numbered(6, 9, epoch=4))
    assert run(Script(planned, ends=grown), 1, 6, epoch=3, planned_end=at(6, 3))[0] == values(
        (1, 6)
    )


def test_an_end_of_unknown_epoch_is_checked_by_the_records_that_were_read(run: Any) -> None:
    read = answer(numbered(0, 3, epoch=3), numbered(3, 9, epoch=4))
    unknown = at(5, NO_EPOCH)
    assert run(Script(read), 0, 5, planned_end=unknown)[0] == values((0, 5))
    # The range ends inside the batch of epoch 4, which was truncated since.
    cut_off = {4: EpochEnd(epoch=3, end_offset=3)}
    with pytest.raises(LogDamaged, match="record before offset 5 was of leader epoch 4"):
        run(Script(read, ends=cut_off), 0, 5, planned_end=unknown)
    # Records after the end of the range were not read.
    assert run(Script(read, ends=cut_off), 0, 3, planned_end=unknown)[0] == values((0, 3))


def test_a_range_without_records_needs_no_check_of_its_epoch(run: Any) -> None:
    """All of the range was compacted away, and the epoch of the record before it ended there."""
    ends = {3: EpochEnd(epoch=3, end_offset=2)}
    script = Script(answer(numbered(5, 6)), ends=ends)
    assert run(script, 2, 5, compacted=True, epoch=3) == ([], (0, 0, 0, 3))


def test_there_is_no_account_of_a_log_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(answer(numbered(0, 3)), ends={0: EpochEnd(epoch=0, end_offset=2)})
    monkeypatch.setattr(reader_module, "KafkaClient", lambda _settings: script)
    settings = KafkaSettings(bootstrap_servers=("nowhere:1",))
    ours = RangeReader(settings, topic="t", topic_id=TOPIC_ID, cluster_id="c", compacted=False)
    with pytest.raises(LogDamaged, match="ends at 2"):
        list(ours.read(0, OffsetRange(start=0, end=3)))
    with pytest.raises(RuntimeError, match="no account"):
        _ = ours.account


def test_a_split_in_the_middle_checks_the_end_of_its_whole_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last split was read before the log was truncated below it. The first, read after that, must fail."""
    planned = PlannedRange(start=0, end=6, start_epoch=-1, end_epoch=3, readable_from=0)
    topic = PlannedTopic(
        name="t", topic_id=TOPIC_ID, cluster_id="c", compacted=False, ranges=(planned,)
    )
    split = InputSplit(index=0, topic="t", partition=0, span=OffsetRange(start=0, end=4))
    settings = KafkaSettings(bootstrap_servers=("nowhere:1",))
    rewritten = answer(numbered(0, 2, epoch=3), numbered(2, 6, epoch=4))
    script = Script(rewritten, ends={3: EpochEnd(epoch=3, end_offset=2)})
    monkeypatch.setattr(reader_module, "KafkaClient", lambda _settings: script)
    with pytest.raises(LogDamaged, match="record before offset 6 was of leader epoch 3"):
        list(KafkaReading(settings, topic, split).batches())


def test_the_id_of_the_topic_is_checked_by_a_fetch_for_nothing(run: Any) -> None:
    script = Script(answer(numbered(0, 3)))
    assert run(script, 0, 3)[0] == values((0, 3))
    (probe,) = script.probes
    assert (probe.offset, probe.bytes_max, probe.committed) == (100, 1, True)
    assert script.layouts == 1


def test_the_id_of_the_topic_is_checked_at_the_leader_that_answered_about_the_epochs(
    run: Any,
) -> None:
    """A replica, or a leader before this one, may still have a topic that is recreated."""
    moved = answer(error=kerrors.NotLeaderForPartitionError)
    near = answer(preferred=7)
    script = Script(moved, near, answer(numbered(0, 3)), epochs=(4, 5))
    assert run(script, 0, 3, rack="here", planned_end=at(3, 0))[0] == values((0, 3))
    assert script.orders[-1].replica == 7
    (probe,) = script.probes
    assert (probe.replica, probe.rack, probe.layout.leaders[0].epoch) == (None, "", 5)


@pytest.mark.parametrize(
    "probe",
    [
        answer(error=kerrors.UnknownTopicIdError),
        answer(error=kerrors.InconsistentTopicIdError),
        answer(error=kerrors.NotLeaderForPartitionError),
        answer(error=kerrors.OffsetOutOfRangeError),
        RetriableError("lost"),
    ],
    ids=["unknown", "another", "moved", "truncated", "lost"],
)
def test_the_id_of_the_topic_is_found_in_its_metadata_if_that_fetch_fails(
    run: Any, probe: Answer
) -> None:
    script = Script(answer(numbered(0, 3)), probe=probe)
    assert run(script, 0, 3)[0] == values((0, 3))
    assert script.layouts == 2


def test_records_after_empty_answers_are_read(run: Any) -> None:
    assert run(Script(answer(), answer(), answer(numbered(0, 3))), 0, 3)[0] == values((0, 3))


def test_a_batch_beyond_the_end_proves_that_the_rest_is_absent(run: Any) -> None:
    script = Script(answer(numbered(0, 2), numbered(7, 9)))
    assert run(script, 0, 5, compacted=True) == (values((0, 2)), (2, 0, 0, 3))


def test_batches_that_compaction_emptied_are_absent(run: Any) -> None:
    emptied = batch(base=2, last_delta=3, producer_id=9, transactional=True)
    marker = batch(base=6, last_delta=0, producer_id=9, transactional=True, flags=0x20)
    script = Script(answer(numbered(0, 2), emptied, marker, numbered(7, 8)))
    assert run(script, 0, 8, compacted=True) == (values((0, 2), (7, 8)), (3, 0, 0, 5))


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_compacted_aborted_batch_is_counted_by_its_records(run: Any, codec: str) -> None:
    sparse = batch(
        Sent(delta=1),
        Sent(delta=3),
        Sent(delta=4),
        last_delta=5,
        producer_id=9,
        transactional=True,
        codec=codec,
    )
    listed = (AbortedTransaction(producer_id=9, first_offset=0),)
    whole = answer(sparse, control(abort=True, base=6, producer_id=9), aborted=listed)
    assert run(Script(whole), 0, 7, compacted=True) == ([], (0, 3, 1, 3))
    assert run(Script(whole), 2, 4, compacted=True) == ([], (0, 1, 0, 1))


def test_a_marker_before_the_position_still_ends_its_transaction(run: Any) -> None:
    """A broker begins with the requested batch. If it begins with a previous one, nothing may be lost."""
    listed = (AbortedTransaction(producer_id=9, first_offset=0),)
    aborted = numbered(0, 2, producer_id=9, transactional=True)
    later = numbered(3, 5, producer_id=9, transactional=True)
    whole = answer(aborted, control(abort=True, base=2, producer_id=9), later, aborted=listed)
    assert run(Script(whole), 3, 5) == (values((3, 5)), (2, 0, 0, 0))


def test_a_truncated_first_batch_is_damage_not_a_loop(run: Any) -> None:
    with pytest.raises(LogDamaged, match=r"\d+ bytes at offset 0 do not contain a whole batch"):
        run(Script(answer(numbered(0, 3)[:-1])), 0, 3)


def test_an_answer_from_before_the_position_is_damage_not_a_loop(run: Any) -> None:
    with pytest.raises(LogDamaged, match="expected offset 5 or later, found an earlier one"):
        run(Script(answer(numbered(0, 3))), 5, 6)


def test_batches_out_of_order_are_damage(run: Any) -> None:
    with pytest.raises(
        LogDamaged, match="batch at offset 1 is damaged: the batch before it reached to offset 3"
    ):
        run(Script(answer(numbered(0, 3), numbered(1, 5))), 0, 5)


def test_sizes_out_of_bounds_are_refused() -> None:
    topic: dict[str, Any] = {
        "topic": "t",
        "topic_id": TOPIC_ID,
        "cluster_id": "c",
        "compacted": False,
    }
    for bad in ({"fetch_bytes_max": 0}, {"batch_rows": 0}, {"batch_bytes": 2**31}):
        with pytest.raises(ValueError, match="sizes are out of bounds"):
            RangeReader(KafkaSettings(bootstrap_servers=("a:1",)), **topic, **bad)


# ---------------------------------------------------------------- fetch from a nearer replica (KIP-392)

NEARER = answer(preferred=7)


def replicas_of(script: Script) -> list[tuple[int | None, str]]:
    return [(order.replica, order.rack) for order in script.orders]


def test_later_fetches_go_to_the_replica_that_the_leader_names(run: Any) -> None:
    script = Script(NEARER, answer(numbered(0, 3)), answer(numbered(3, 5)))
    assert run(script, 0, 5, rack="here") == (values((0, 5)), (5, 0, 0, 0))
    assert replicas_of(script) == [(None, "here"), (7, "here"), (7, "here")]
    assert script.requested == [0, 0, 3]


@pytest.mark.parametrize(
    "bad",
    [
        answer(last_stable=3),
        answer(error=kerrors.OffsetOutOfRangeError),
        answer(error=kerrors.NotLeaderForPartitionError),
        answer(error=kerrors.CorruptRecordError),
        answer(log_start=4),
        answer(),
        RetriableError("it hung up"),
    ],
    ids=["lags", "out of range", "is none", "corrupt", "expired", "is empty", "hangs up"],
)
def test_the_leader_is_read_if_the_replica_fails(run: Any, bad: Answer) -> None:
    script = Script(NEARER, answer(numbered(0, 3)), bad, answer(numbered(3, 5)))
    assert run(script, 0, 5, rack="here") == (values((0, 5)), (5, 0, 0, 0))
    # Without a rack: otherwise the leader would name the same replica again.
    assert replicas_of(script) == [(None, "here"), (7, "here"), (7, "here"), (None, "")]


def test_the_answer_of_the_leader_after_a_replica_is_final(run: Any) -> None:
    bad = answer(last_stable=4)
    with pytest.raises(NotYet, match="expected a last stable offset of at least 5, found 4"):
        run(Script(NEARER, bad, bad), 0, 5, rack="here")


def test_a_replica_with_a_lower_high_watermark_serves_the_records_below_it(run: Any) -> None:
    """Followers get the high watermark later than the leader. Records below theirs are stable, too."""
    behind = answer(numbered(0, 3), last_stable=3)
    script = Script(NEARER, behind, answer(numbered(3, 5)))
    assert run(script, 0, 5, rack="here") == (values((0, 5)), (5, 0, 0, 0))
    assert replicas_of(script) == [(None, "here"), (7, "here"), (7, "here")]


def test_without_a_rack_only_the_leader_is_read(run: Any) -> None:
    script = Script(answer(numbered(0, 5)))
    run(script, 0, 5)
    assert replicas_of(script) == [(None, "")]
