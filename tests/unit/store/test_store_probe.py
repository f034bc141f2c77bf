"""The probe passes an honest store and refuses each kind of dishonest one, saying which step gave it away."""

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
    """Stands for a server that does not know the conditions: it overwrites and says 200."""

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
    """Says 412 and has written all the same."""

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
    """Stores the checksum trailer as a part of the object (boto3#4392)."""

    def create(self, key: str, body: bytes | Path) -> Outcome:
        assert isinstance(body, bytes)
        return super().create(key, body + b"\r\nx-amz-checksum-crc32:AAAAAA==")


class TellsOtherETags(MemoryStore):
    def get(self, key: str) -> Stored | None:
        found = super().get(key)
        return None if found is None else Stored(body=found.body, etag=ETag(found.etag.strip('"')))


class ForbidsDeletion(MemoryStore):
    def delete(self, keys: Iterable[str]) -> None:
        raise SettingsError("refused to delete.", hint="grant s3:DeleteObject.")


class LacksDeletion(MemoryStore):
    def delete(self, keys: Iterable[str]) -> None:
        raise StoreRefused("501 for DeleteObjects.", hint="use another store.")


def test_an_honest_store_passes_and_keeps_no_scratch() -> None:
    store = MemoryStore()
    result = prove_conditional_writes(store, scratch=SCRATCH)
    assert (result.uri, result.scratch, result.scratch_left) == ("memory://memory", SCRATCH, False)
    assert [step.asked for step in result.steps if "If-" in step.asked] == [
        "create an object that is not there (If-None-Match: *)",
        "create it again (If-None-Match: *)",
        "replace it by its ETag (If-Match)",
        "replace it by the ETag it had before (stale If-Match)",
        "replace an object that is not there (If-Match)",
    ]
    assert [*store.list("")] == []


def test_a_store_that_says_412_for_a_missing_object_passes_too() -> None:
    class LikeR2(MemoryStore):
        def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
            outcome = super().replace(key, body, expected=expected)
            return outcome if isinstance(outcome, Applied) else NotApplied(because="changed")

    result = prove_conditional_writes(LikeR2(), scratch=SCRATCH)
    assert result.steps[-2].answered == "refused: changed"


@pytest.mark.parametrize(
    ("make", "asked", "expected", "answered"),
    [
        (IgnoresIfNoneMatch, "create it again", "refused: exists", "applied"),
        (IgnoresIfMatch, "stale If-Match", "refused: changed", "applied"),
        (
            IgnoresIfMatchOnMissing,
            "replace an object that is not there",
            "refused: missing or refused",
            "applied",
        ),
        (RefusesButWrites, "read it back", "bytes written", "other bytes"),
        (RefusesEveryReplace, "replace it by its ETag", "applied", "refused: changed"),
        (KeepsTheTrailer, "read it back", "bytes written", "other bytes"),
        (TellsOtherETags, "read it back", "bytes written", "under ETag 2 instead"),
    ],
)
def test_a_dishonest_store_is_refused_by_the_step_that_gives_it_away(
    make: Callable[[], MemoryStore], asked: str, expected: str, answered: str
) -> None:
    store = make()
    store.create("lake/root.json", b"mine")
    before = store.get("lake/root.json")
    with pytest.raises(StoreRefused) as raised:
        prove_conditional_writes(store, scratch=SCRATCH)
    told = raised.value.message
    assert told.startswith("memory://memory does not honour conditional writes: asked to ")
    asked_told, _, rest = told.partition(", expected ")
    expected_told, _, answered_told = rest.partition(", answered ")
    assert asked in asked_told
    assert expected in expected_told
    assert answered in answered_told
    assert "If-Match and If-None-Match" in raised.value.hint
    assert store.get("lake/root.json") == before
    assert [line.key for line in store.list("")] == ["lake/root.json"]


@pytest.mark.parametrize("store", [ForbidsDeletion(), LacksDeletion()])
def test_where_deleting_is_forbidden_the_scratch_is_left_and_told(store: MemoryStore) -> None:
    assert prove_conditional_writes(store, scratch=SCRATCH).scratch_left is True
    assert [line.key for line in store.list("")] == [SCRATCH]


DOUBTS = (Fault.DROP, Fault.LOSE_REPLY, Fault.CONFLICT)
WRITES = 5


def of_writes(first: int, count: int, fault: Fault) -> Plan:
    """The plan that fails `count` writes from the one numbered `first` on."""
    writes = itertools.count()

    def plan(call: Call) -> Fault | None:
        if call.verb not in ("create", "replace"):
            return None
        return fault if first <= next(writes) < first + count else None

    return plan


@pytest.mark.parametrize("fault", DOUBTS)
@pytest.mark.parametrize("first", range(WRITES))
def test_an_unknown_outcome_is_no_finding_and_is_sent_again(fault: Fault, first: int) -> None:
    """S3 that answers 503 to a third of requests lets five single writes through once in eight times."""
    honest = prove_conditional_writes(MemoryStore(), scratch=SCRATCH).steps
    store, pauses = FaultyStore(MemoryStore(), of_writes(first, 3, fault)), list[float]()
    found = prove_conditional_writes(store, scratch=SCRATCH, sleep=pauses.append)
    assert [s.answered for s in found.steps] == [s.answered for s in honest]
    assert len(store.fired) == 3
    assert pauses
    assert [*store.list("")] == []


@pytest.mark.parametrize("first", range(WRITES))
def test_a_write_that_lands_late_between_two_tries_is_no_finding_either(first: int) -> None:
    store = FaultyStore(MemoryStore(), of_writes(first, 1, Fault.DELAY))
    prove_conditional_writes(store, scratch=SCRATCH, sleep=lambda _: (store.release(), None)[1])
    assert (len(store.fired), store.held) == (1, ())
    assert [*store.list("")] == []


def test_a_store_that_hangs_is_not_asked_eight_times() -> None:
    clock = itertools.count(step=20)  # each look at the clock is a read timeout later
    store = FaultyStore(MemoryStore(), of_writes(0, 100, Fault.DROP))
    with pytest.raises(StoreUnavailable, match="could not be finished"):
        prove_conditional_writes(
            store, scratch=SCRATCH, sleep=lambda _: None, monotonic_s=lambda: float(next(clock))
        )
    assert len(store.fired) == 2


@pytest.mark.parametrize("fault", DOUBTS)
@pytest.mark.parametrize("first", range(WRITES))
def test_where_it_stays_unknown_there_is_a_reason_to_try_again(fault: Fault, first: int) -> None:
    pauses: list[float] = []
    store = FaultyStore(MemoryStore(), of_writes(first, 100, fault))
    with pytest.raises(StoreUnavailable, match=r"could not be finished.*If-"):
        prove_conditional_writes(store, scratch=SCRATCH, sleep=pauses.append)
    assert len(pauses) == 7
    assert sum(pauses) < 10


@pytest.mark.parametrize("fault", DOUBTS)
@pytest.mark.parametrize(
    "make", [IgnoresIfNoneMatch, IgnoresIfMatch, IgnoresIfMatchOnMissing, RefusesButWrites]
)
@pytest.mark.parametrize("first", range(WRITES))
def test_doubt_does_not_let_a_dishonest_store_pass(
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
