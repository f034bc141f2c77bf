"""The probe accepts a correct store, and refuses each kind of broken one with the step that failed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tallystick.errors import SettingsError, StoreRefused, StoreUnavailable
from tallystick.store import Applied, ETag, NotApplied, Outcome, Stored
from tallystick.store.memory import MemoryStore
from tallystick.store.probe import prove_conditional_writes
from tallystick_devstack.testing.faults import Call, Fault, FaultyStore, Plan, script

SCRATCH = ".probe/0123"


class Overwriting(MemoryStore):
    """A store like a server that ignores the conditions: it overwrites and answers 200."""

    def overwrite(self, key: str, body: bytes) -> Outcome:
        self.delete([key])
        return MemoryStore.create(self, key, body)


class IgnoresIfNoneMatch(Overwriting):
    def create(self, key: str, body: bytes | Path) -> Outcome:
        assert isinstance(body, bytes)
        return self.overwrite(key, body)


class IgnoresIfMatch(Overwriting):
    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        return self.overwrite(key, body)


class IgnoresIfMatchOnMissing(Overwriting):
    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        return (
            self.overwrite(key, body)
            if self.get(key) is None
            else super().replace(key, body, expected=expected)
        )


class RefusesButWrites(Overwriting):
    """A store that answers 412 although it has written."""

    def create(self, key: str, body: bytes | Path) -> Outcome:
        assert isinstance(body, bytes)
        outcome = super().create(key, body)
        if isinstance(outcome, NotApplied):
            self.overwrite(key, body)
        return outcome


class RefusesEveryReplace(MemoryStore):
    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        return NotApplied(because="changed")


class KeepsTheTrailer(MemoryStore):
    """A store that writes the checksum trailer as a part of the object (boto3#4392)."""

    def create(self, key: str, body: bytes | Path) -> Outcome:
        assert isinstance(body, bytes)
        return super().create(key, body + b"\r\nx-amz-checksum-crc32:AAAAAA==")


class ReturnsOtherETags(MemoryStore):
    def get(self, key: str) -> Stored | None:
        found = super().get(key)
        return None if found is None else Stored(body=found.body, etag=ETag(found.etag.strip('"')))


class ForbidsDeletion(MemoryStore):
    def delete(self, keys: Iterable[str]) -> None:
        raise SettingsError("refused to delete.", hint="grant s3:DeleteObject.")


class LacksDeletion(MemoryStore):
    def delete(self, keys: Iterable[str]) -> None:
        raise StoreRefused("501 for DeleteObjects.", hint="use another store.")


def test_a_correct_store_passes_and_no_scratch_is_left() -> None:
    store = MemoryStore()
    result = prove_conditional_writes(store, scratch=SCRATCH)
    assert (result.uri, result.scratch, result.scratch_left) == ("memory://memory", SCRATCH, False)
    assert [step.request for step in result.steps if "If-" in step.request] == [
        "create an object that does not exist (If-None-Match: *)",
        "create it again (If-None-Match: *)",
        "replace it by its ETag (If-Match)",
        "replace it by the ETag it had before (stale If-Match)",
        "replace an object that does not exist (If-Match)",
    ]
    assert [*store.list("")] == []


def test_a_store_that_answers_412_for_a_missing_object_passes() -> None:
    class LikeR2(MemoryStore):
        def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
            outcome = super().replace(key, body, expected=expected)
            return outcome if isinstance(outcome, Applied) else NotApplied(because="changed")

    result = prove_conditional_writes(LikeR2(), scratch=SCRATCH)
    assert result.steps[-2].found == "refused: changed"


@pytest.mark.parametrize(
    ("make", "step", "expected", "answer"),
    [
        (IgnoresIfNoneMatch, "create it again", "refused: exists", "applied"),
        (IgnoresIfMatch, "stale If-Match", "refused: changed", "applied"),
        (
            IgnoresIfMatchOnMissing,
            "replace an object that does not exist",
            "refused: missing or refused",
            "applied",
        ),
        (RefusesButWrites, "read it back", "bytes written", "other bytes"),
        (RefusesEveryReplace, "replace it by its ETag", "applied", "refused: changed"),
        (KeepsTheTrailer, "read it back", "bytes written", "other bytes"),
        (ReturnsOtherETags, "read it back", "bytes written", "under ETag 2 instead"),
    ],
)
def test_a_broken_store_is_refused_with_the_step_that_failed(
    make: Callable[[], MemoryStore], step: str, expected: str, answer: str
) -> None:
    store = make()
    store.create("lake/root.json", b"mine")
    before = store.get("lake/root.json")
    with pytest.raises(StoreRefused) as raised:
        prove_conditional_writes(store, scratch=SCRATCH)
    message = raised.value.message
    assert message.startswith(
        "memory://memory does not honour conditional writes: on the request to "
    )
    step_shown, _, rest = message.partition(", expected ")
    expected_shown, _, answer_shown = rest.partition(", found ")
    assert step in step_shown
    assert expected in expected_shown
    assert answer in answer_shown
    assert "If-Match and If-None-Match" in raised.value.hint
    assert store.get("lake/root.json") == before
    assert [line.key for line in store.list("")] == ["lake/root.json"]


@pytest.mark.parametrize("store", [ForbidsDeletion(), LacksDeletion()])
def test_the_scratch_is_left_and_reported_if_deletion_is_forbidden(store: MemoryStore) -> None:
    assert prove_conditional_writes(store, scratch=SCRATCH).scratch_left is True
    assert [line.key for line in store.list("")] == [SCRATCH]


DOUBTS = (Fault.DROP, Fault.LOSE_REPLY, Fault.CONFLICT)
WRITES = 5


def of_writes(first: int, count: int, fault: Fault) -> Plan:
    """Return a plan that fails `count` writes, beginning with number `first`."""
    writes = itertools.count()

    def plan(call: Call) -> Fault | None:
        if call.verb not in ("create", "replace"):
            return None
        return fault if first <= next(writes) < first + count else None

    return plan


@pytest.mark.parametrize("fault", DOUBTS)
@pytest.mark.parametrize("first", range(WRITES))
def test_a_write_with_an_unknown_outcome_is_retried_and_is_no_finding(
    fault: Fault, first: int
) -> None:
    """If S3 answers 503 to a third of requests, five single writes succeed only once in eight times."""
    correct = prove_conditional_writes(MemoryStore(), scratch=SCRATCH).steps
    store, pauses = FaultyStore(MemoryStore(), of_writes(first, 3, fault)), list[float]()
    found = prove_conditional_writes(store, scratch=SCRATCH, sleep=pauses.append)
    assert [s.found for s in found.steps] == [s.found for s in correct]
    assert len(store.fired) == 3
    assert pauses
    assert [*store.list("")] == []


@pytest.mark.parametrize("first", range(WRITES))
def test_a_write_that_is_applied_late_between_two_tries_is_no_finding(first: int) -> None:
    store = FaultyStore(MemoryStore(), of_writes(first, 1, Fault.DELAY))
    prove_conditional_writes(store, scratch=SCRATCH, sleep=lambda _: (store.release(), None)[1])
    assert (len(store.fired), store.held) == (1, ())
    assert [*store.list("")] == []


def test_a_store_that_hangs_is_not_tried_eight_times() -> None:
    clock = itertools.count(step=20)  # each read of the clock is a read timeout later
    store = FaultyStore(MemoryStore(), of_writes(0, 100, Fault.DROP))
    with pytest.raises(StoreUnavailable, match="is unfinished"):
        prove_conditional_writes(
            store, scratch=SCRATCH, sleep=lambda _: None, monotonic_s=lambda: float(next(clock))
        )
    assert len(store.fired) == 2


@pytest.mark.parametrize("fault", DOUBTS)
@pytest.mark.parametrize("first", range(WRITES))
def test_a_probe_whose_outcomes_remain_unknown_can_be_retried(fault: Fault, first: int) -> None:
    pauses: list[float] = []
    store = FaultyStore(MemoryStore(), of_writes(first, 100, fault))
    with pytest.raises(StoreUnavailable, match=r"is unfinished.*If-"):
        prove_conditional_writes(store, scratch=SCRATCH, sleep=pauses.append)
    assert len(pauses) == 7
    assert sum(pauses) < 10


@pytest.mark.parametrize("fault", DOUBTS)
@pytest.mark.parametrize(
    "make", [IgnoresIfNoneMatch, IgnoresIfMatch, IgnoresIfMatchOnMissing, RefusesButWrites]
)
@pytest.mark.parametrize("first", range(WRITES))
def test_unknown_outcomes_do_not_let_a_broken_store_pass(
    make: Callable[[], MemoryStore], fault: Fault, first: int
) -> None:
    with pytest.raises(StoreRefused):
        prove_conditional_writes(
            FaultyStore(make(), of_writes(first, 2, fault)), scratch=SCRATCH, sleep=lambda _: None
        )


@pytest.mark.parametrize("index", range(10))
def test_a_store_that_does_not_answer_is_unavailable_and_never_refused(index: int) -> None:
    store = FaultyStore(MemoryStore(), script({index: Fault.UNAVAILABLE}))
    with pytest.raises(StoreUnavailable):
        prove_conditional_writes(store, scratch=SCRATCH)
    assert len(store.fired) == 1
