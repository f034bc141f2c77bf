"""Empty answers: a log that a broker withholds for a while, or for ever, is never treated as an empty log."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Self

import pytest

from support.kafka_batches import Sent, batch
from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import KafkaUnavailable, LogDamaged, RetryLater
from tallystick.format.offsets import OffsetRange
from tallystick.kafka import planning
from tallystick.kafka import reader as reader_module
from tallystick.kafka.batches import walk
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.planning import LogPlanner
from tallystick.kafka.reader import RangeReader
from tallystick.kafka.search import Search
from tallystick.kafka.wire import (
    EARLIEST,
    LATEST,
    EpochEnd,
    Fetched,
    FetchOrder,
    Leader,
    TopicLayout,
    topic_id_text,
)

TOPIC_ID = topic_id_text(uuid.UUID(int=5))
LAYOUT = TopicLayout(name="t", topic_id=TOPIC_ID, leaders=(Leader(node_id=1, epoch=0),))
FOR_EVER = float("inf")
Silent = Callable[[FetchOrder, float], bool]


def until(end_s: float) -> Silent:
    """Answer every fetch with nothing until this time."""
    return lambda _order, now: now < end_s


def never(_order: FetchOrder, _now: float) -> bool:
    return False


class QuietLog(KafkaClient):
    """The batches of one partition, served as by a broker, except that `silent` makes answers empty.

    Its clock is scripted: an empty answer takes as long as the fetch may wait, a pause takes one second.
    """

    def __init__(
        self,
        *batches: bytes,
        silent: Silent = never,
        high_watermark: int,
        last_stable: int | None = None,
        patience_s: int = 300,
        timestamps: Mapping[int, int] | None = None,
        one_each: bool = False,
    ) -> None:
        settings = KafkaSettings(
            bootstrap_servers=("nowhere:1",), empty_fetch_timeout_ms=patience_s * 1_000
        )
        super().__init__(settings)
        self._batches = batches
        self._silent = silent
        self._high_watermark = high_watermark
        self._last_stable = high_watermark if last_stable is None else last_stable
        self._found = timestamps or {}
        self._one_each = one_each
        self.now = 0.0
        self.orders: list[FetchOrder] = []

    def __enter__(self) -> Self:
        return self

    def clock(self) -> float:
        return self.now

    def pause(self, attempt: int) -> None:
        self.now += 1.0

    def cluster_id(self) -> str:
        return "c"

    def layout(self, topic: str, *, topic_id: str | None = None) -> TopicLayout:
        return LAYOUT

    def epoch_ends(self, layout: TopicLayout, epochs: Any) -> dict[int, EpochEnd]:
        return {0: EpochEnd(epoch=0, end_offset=self._high_watermark)}

    def list_offsets(
        self, layout: TopicLayout, at: Mapping[int, int], *, committed: bool
    ) -> dict[int, int]:
        last = self._last_stable if committed else self._high_watermark
        return {0: {EARLIEST: 0, LATEST: last, **self._found}[at[0]]}

    def fetch(self, order: FetchOrder) -> Any:
        if order.wait_ms:  # otherwise it only asks if the topic is still the same one
            self.orders.append(order)
        end = self._last_stable if order.committed else self._high_watermark
        records = b""
        if not self._silent(order, self.now):
            for raw in self._batches:
                (each,) = walk(raw, place="t")
                room = order.bytes_max - len(records)
                fits = not records or (not self._one_each and len(raw) <= room)
                if order.offset < each.end_offset <= end and fits:
                    records += raw
        if not records:
            self.now += order.wait_ms / 1_000
        fetched = Fetched(
            error_code=0,
            records=records,
            log_start=0,
            high_watermark=self._high_watermark,
            last_stable=self._last_stable,
            aborted=(),
        )

        class Pending:
            def result(self) -> Fetched:
                return fetched

        pending = Pending()
        pending.order = order  # type: ignore[attr-defined]
        return pending


def numbered(start: int, end: int, **options: Any) -> bytes:
    return batch(*(Sent(value=b"%d" % i) for i in range(start, end)), base=start, **options)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Read [start, end) of a log. Returns the offsets of its records, and the account as (records, absent)."""

    def go(log: QuietLog, start: int, end: int, *, compacted: bool) -> Any:
        monkeypatch.setattr(reader_module, "KafkaClient", lambda _settings: log)
        ours = RangeReader(
            log._connection.settings,
            topic="t",
            topic_id=TOPIC_ID,
            cluster_id="c",
            compacted=compacted,
        )
        span = OffsetRange(start=start, end=end)
        offsets = [o for each in ours.read(0, span) for o in each["offset"].to_pylist()]
        return offsets, (ours.account.records, ours.account.absent)

    return go


# ---------------------------------------------------------------- reading

COMPACTED = pytest.mark.parametrize("compacted", [False, True], ids=["delete", "compact"])


@COMPACTED
@pytest.mark.parametrize("silent_s", [1, 3, 60, 299])
def test_records_after_empty_answers_of_any_duration_are_read(
    run: Any, compacted: bool, silent_s: int
) -> None:
    log = QuietLog(numbered(0, 10), numbered(10, 100), silent=until(silent_s), high_watermark=100)
    assert run(log, 0, 10, compacted=compacted) == (list(range(10)), (10, 0))


@COMPACTED
def test_records_after_empty_answers_in_the_middle_of_a_range_are_read(
    run: Any, compacted: bool
) -> None:
    def silent(order: FetchOrder, now: float) -> bool:
        return order.offset >= 4 and now < 120

    batches = [numbered(i, i + 2) for i in range(0, 12, 2)]
    log = QuietLog(*batches, silent=silent, high_watermark=12, one_each=True)
    assert run(log, 0, 12, compacted=compacted) == (list(range(12)), (12, 0))
    # After an empty answer the minimum is requested; after records, as much as before.
    at_4 = [order.bytes_max for order in log.orders if order.offset == 4]
    assert (at_4[0] > 1, set(at_4[1:])) == (True, {1})
    assert all(order.bytes_max > 1 for order in log.orders if order.offset > 4)


@COMPACTED
def test_a_log_that_remains_empty_is_unavailable_and_never_damaged_or_absent(
    run: Any, compacted: bool
) -> None:
    log = QuietLog(numbered(0, 10), numbered(10, 20), silent=until(FOR_EVER), high_watermark=20)
    with pytest.raises(
        KafkaUnavailable, match=r"from offset 0: \d+ answers in 30\d s were empty"
    ) as failed:
        run(log, 0, 10, compacted=compacted)
    assert isinstance(failed.value, RetryLater)
    assert "below the high watermark 20" in str(failed.value)
    assert "remote.fetch.max.wait.ms" in failed.value.hint
    assert "empty_fetch_timeout_ms" in failed.value.hint


def test_empty_fetch_timeout_ms_limits_the_wait(run: Any) -> None:
    log = QuietLog(numbered(0, 10), silent=until(FOR_EVER), high_watermark=20, patience_s=20)
    with pytest.raises(KafkaUnavailable, match=r"answers in 2\d s were empty"):
        run(log, 0, 10, compacted=True)


def test_each_silence_has_the_whole_timeout(run: Any) -> None:
    """Two silences of 200 s each, with records between them."""
    quiet = {0: 200.0, 5: 400.0}

    def silent(order: FetchOrder, now: float) -> bool:
        return now < quiet.get(order.offset, 0.0)

    log = QuietLog(numbered(0, 5), numbered(5, 10), silent=silent, high_watermark=10)
    assert run(log, 0, 10, compacted=True) == (list(range(10)), (10, 0))


@pytest.mark.parametrize("silent_s", [0, 60])
def test_the_batch_after_the_range_proves_that_its_rest_is_absent(run: Any, silent_s: int) -> None:
    log = QuietLog(numbered(0, 3), numbered(7, 9), silent=until(silent_s), high_watermark=9)
    assert run(log, 0, 5, compacted=True) == ([0, 1, 2], (3, 2))


@pytest.mark.parametrize("silent_s", [0, 60])
def test_the_proof_can_be_beyond_the_last_stable_offset(run: Any, silent_s: int) -> None:
    """An open transaction begins at the end of the range: a committed fetch never returns any of it."""
    log = QuietLog(
        numbered(0, 3), numbered(5, 9), silent=until(silent_s), high_watermark=9, last_stable=5
    )
    assert run(log, 0, 5, compacted=True) == ([0, 1, 2], (3, 2))
    proof = log.orders[-1]
    assert (proof.committed, proof.offset, proof.bytes_max) == (False, 3, 1)


def test_offsets_proven_absent_are_damage_in_a_log_that_is_not_compacted(run: Any) -> None:
    log = QuietLog(numbered(0, 3), numbered(7, 9), high_watermark=9)
    with pytest.raises(LogDamaged, match=r"has no records at 2 of the offsets \[3, 5\)"):
        run(log, 0, 5, compacted=False)


def test_a_batch_after_the_range_is_no_proof_unless_it_answers_a_fetch_from_the_gap(
    run: Any,
) -> None:
    """The range is on a remote tier that does not answer. What follows it is on the local disk of the broker."""

    def silent(order: FetchOrder, _now: float) -> bool:
        return order.offset < 10

    log = QuietLog(numbered(0, 10), numbered(10, 20), silent=silent, high_watermark=20)
    with pytest.raises(KafkaUnavailable, match="were empty"):
        run(log, 0, 10, compacted=True)


@COMPACTED
def test_the_end_of_a_log_is_no_proof(run: Any, compacted: bool) -> None:
    """The range ends at the end of the log: nothing can follow, and its records may be withheld."""
    log = QuietLog(numbered(0, 10), silent=until(FOR_EVER), high_watermark=10)
    with pytest.raises(KafkaUnavailable, match="were empty"):
        run(log, 0, 10, compacted=compacted)
    log = QuietLog(numbered(0, 10), silent=until(200), high_watermark=10)
    assert run(log, 0, 10, compacted=compacted) == (list(range(10)), (10, 0))


def test_a_long_silence_is_logged(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    log = QuietLog(numbered(0, 3), silent=until(100), high_watermark=3)
    run(log, 0, 3, compacted=True)
    name = "tallystick.kafka.silence"
    messages = [entry.getMessage() for entry in caplog.records if entry.name == name]
    assert 2 <= len(messages) <= 3
    assert "'t' partition 0 from offset 0" in messages[0]


# ---------------------------------------------------------------- planning

LOG = (
    batch(*(Sent(timestamp=1_000) for _ in range(10)), base=0),
    batch(*(Sent(timestamp=2_000) for _ in range(10)), base=10),
)


@pytest.mark.parametrize("silent_s", [0, 1, 60, 299])
def test_a_search_finds_records_after_empty_answers(silent_s: int) -> None:
    log = QuietLog(*LOG, silent=until(silent_s), high_watermark=20)
    assert Search(log, LAYOUT, 0, 2_000).first(0) == 10


def test_a_search_never_ends_at_the_high_watermark_because_of_empty_answers() -> None:
    log = QuietLog(*LOG, silent=until(FOR_EVER), high_watermark=20)
    with pytest.raises(KafkaUnavailable, match=r"from offset 0: \d+ answers in 30\d s were empty"):
        Search(log, LAYOUT, 0, 2_000).first(0)


def test_a_search_ends_at_the_high_watermark_if_it_has_read_everything_before_it() -> None:
    log = QuietLog(*LOG, high_watermark=20)
    assert Search(log, LAYOUT, 0, 3_000).first(0) == 20
    found = Search(log, LAYOUT, 0, 3_000).position(20, 0)
    assert (found.offset, found.leader_epoch) == (20, 0)


def test_the_epoch_before_a_split_is_waited_for() -> None:
    log = QuietLog(*LOG, silent=until(60), high_watermark=20)
    assert Search(log, LAYOUT, 0, 2_000).position(10, 0).leader_epoch == 0
    log = QuietLog(*LOG, silent=until(FOR_EVER), high_watermark=20)
    with pytest.raises(KafkaUnavailable, match="from offset 9"):
        Search(log, LAYOUT, 0, 2_000).position(10, 0)


def planner_of(log: QuietLog, monkeypatch: pytest.MonkeyPatch) -> LogPlanner:
    monkeypatch.setattr(planning, "KafkaClient", lambda _settings: log)
    return LogPlanner(log._connection.settings)


def test_a_boundary_does_not_depend_on_how_long_a_broker_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for silent_s in (0, 3, 60, 250):
        log = QuietLog(
            *LOG, silent=until(silent_s), high_watermark=20, timestamps={2_000: 10, 3_000: -1}
        )
        planner = planner_of(log, monkeypatch)
        assert [position.offset for position in planner.boundary("t", 2_000, [0])] == [10]
        assert [position.offset for position in planner.boundary("t", 3_000, [0])] == [20]


def test_a_boundary_is_not_set_while_a_broker_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    log = QuietLog(*LOG, silent=until(FOR_EVER), high_watermark=20, timestamps={2_000: 10})
    with pytest.raises(KafkaUnavailable, match="were empty"):
        planner_of(log, monkeypatch).boundary("t", 2_000, [0])


def test_a_boundary_is_not_set_at_the_end_of_a_leader_that_was_just_elected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its high watermark rises after the followers have fetched from it (see KIP-207 for ListOffsets)."""
    log = QuietLog(*LOG, high_watermark=20, timestamps={2_500: 0})
    listed = log.list_offsets
    monkeypatch.setattr(
        log,
        "list_offsets",
        lambda layout, at, *, committed: (
            {0: 30} if at[0] == LATEST else listed(layout, at, committed=committed)
        ),
    )
    with pytest.raises(
        KafkaUnavailable, match="expected a high watermark of at least 30, found 20"
    ):
        planner_of(log, monkeypatch).boundary("t", 2_500, [0])


def test_an_answer_from_before_the_requested_offset_is_damage_not_a_loop() -> None:
    log = QuietLog(*LOG, high_watermark=100)
    log.fetch = lambda order: QuietLog.fetch(  # type: ignore[method-assign]
        log, FetchOrder(**{**{f: getattr(order, f) for f in order.__slots__}, "offset": 0})
    )
    with pytest.raises(LogDamaged, match="expected offset 20 or later, found an earlier one"):
        Search(log, LAYOUT, 0, 3_000).first(0)


# ---------------------------------------------------------------- a record from the future, and the scan that follows


def test_a_scan_requests_more_each_time_and_is_exact(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """ListOffsets answers every instant with the record from the future; the right record is before a late one."""
    stamps = [9_000, *[1_000] * 40, 2_000, 1_500, 2_500]
    batches = [
        batch(Sent(timestamp=at, value=bytes(400_000)), base=i) for i, at in enumerate(stamps)
    ]
    log = QuietLog(*batches, high_watermark=len(stamps), timestamps={2_000: 0})
    fetch = log.fetch

    def slow(order: FetchOrder) -> Any:
        log.now += 20.0
        return fetch(order)

    monkeypatch.setattr(log, "fetch", slow)
    caplog.set_level("INFO", logger="tallystick.kafka.search")
    (found,) = planner_of(log, monkeypatch).boundary("t", 2_000, [5])
    assert (found.offset, found.leader_epoch) == (41, 0)
    sizes = [order.bytes_max for order in log.orders]
    assert sizes[:4] == [1, 1 << 20, 2 << 20, 4 << 20]
    assert max(sizes) == 4 << 20
    assert any("at offset" in entry.getMessage() for entry in caplog.records)


# ---------------------------------------------------------------- mutants


def test_a_reader_that_treats_silence_as_an_empty_log_loses_records(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the proof, a silence of a few seconds makes ten records absent."""

    def skip_to_end(self: Any, _fetched: Fetched, _silence: Any) -> None:
        self.tally.skip_to(self._span.end)

    monkeypatch.setattr(reader_module._Reading, "_after_empty", skip_to_end)
    log = QuietLog(numbered(0, 10), silent=until(3), high_watermark=10)
    assert run(log, 0, 10, compacted=True) == ([], (0, 10))


def test_a_proof_that_is_fetched_after_the_gap_loses_records(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer to a fetch at the end of the range proves nothing about the range. The mutant fetches there."""
    fetch_from = reader_module._Reading._send

    def at_the_end(self: Any, offset: int, *, committed: bool = True, **options: Any) -> Any:
        return fetch_from(
            self, offset if committed else self._span.end, committed=committed, **options
        )

    def silent(order: FetchOrder, _now: float) -> bool:
        return order.offset < 10

    monkeypatch.setattr(reader_module._Reading, "_send", at_the_end)
    log = QuietLog(numbered(0, 10), numbered(10, 20), silent=silent, high_watermark=20)
    assert run(log, 0, 10, compacted=True) == ([], (0, 10))
