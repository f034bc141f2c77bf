"""FaultyStore: each fault, which writes it applies, and the answer that the caller gets."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tallystick.errors import StoreUnavailable
from tallystick.store import Applied, ETag, NotApplied, Outcome, Unknown
from tallystick.store.memory import MemoryStore
from tallystick_devstack.testing.faults import (
    APPLICABLE,
    Call,
    Fault,
    FaultyStore,
    Killed,
    no_faults,
    script,
    seeded,
)
from tallystick_devstack.testing.store_contract import StoreContract, StoreRaceContract, applied


class TestWithoutFaults(StoreContract, StoreRaceContract):
    @pytest.fixture
    def store(self) -> FaultyStore:
        return FaultyStore(MemoryStore())


@pytest.fixture
def inner() -> MemoryStore:
    return MemoryStore()


def body_of(store: MemoryStore, key: str) -> bytes | None:
    found = store.get(key)
    return None if found is None else found.body


@pytest.mark.parametrize(
    ("fault", "is_applied"),
    [(Fault.LOSE_REPLY, True), (Fault.DROP, False), (Fault.CONFLICT, False), (Fault.DELAY, False)],
)
def test_a_write_without_an_answer_is_unknown(
    inner: MemoryStore, fault: Fault, is_applied: bool
) -> None:
    store = FaultyStore(inner, script({0: fault, 1: fault}))
    assert isinstance(store.create("a", b"one"), Unknown)
    assert (body_of(inner, "a") == b"one") is is_applied
    root = applied(inner.create("root", b"one"))
    assert isinstance(store.replace("root", b"two", expected=root), Unknown)
    assert (body_of(inner, "root") == b"two") is is_applied


def test_the_condition_of_a_delayed_write_is_checked_when_it_is_applied(inner: MemoryStore) -> None:
    root = applied(inner.create("root", b"one"))
    store = FaultyStore(inner, script({0: Fault.DELAY, 1: Fault.DELAY}))
    assert isinstance(store.replace("root", b"late", expected=root), Unknown)
    assert isinstance(store.create("slot", b"late"), Unknown)
    assert [(write.call.key, write.body) for write in store.held] == [
        ("root", b"late"),
        ("slot", b"late"),
    ]
    inner.replace("root", b"faster", expected=root)
    assert isinstance(store.release(1), Applied)
    assert store.release() == NotApplied(because="changed")
    assert (body_of(inner, "root"), body_of(inner, "slot")) == (b"faster", b"late")
    assert store.held == ()
    with pytest.raises(IndexError):
        store.release()


def test_a_delayed_file_has_the_bytes_at_the_time_of_the_call(
    inner: MemoryStore, tmp_path: Path
) -> None:
    file = tmp_path / "part"
    file.write_bytes(b"sent")
    store = FaultyStore(inner, script({0: Fault.DELAY}))
    store.create("a", file)
    file.unlink()
    assert isinstance(store.release(), Applied)
    assert body_of(inner, "a") == b"sent"


def test_a_duplicated_write_returns_the_second_answer(inner: MemoryStore) -> None:
    store = FaultyStore(inner, script({0: Fault.DUPLICATE, 1: Fault.DUPLICATE}))
    assert store.create("a", b"one") == NotApplied(because="exists")
    found = inner.get("a")
    assert found is not None
    assert found.body == b"one"
    assert store.replace("a", b"two", expected=found.etag) == NotApplied(because="changed")
    assert body_of(inner, "a") == b"two"


def test_an_echo_is_answered_and_applied_again_only_if_its_condition_is_true() -> None:
    by_content = MemoryStore(content_etags=True)
    for inner, again in ((MemoryStore(), False), (by_content, True)):
        first = applied(inner.create("root", b"A"))
        store = FaultyStore(inner, script({0: Fault.ECHO}))
        second = applied(store.replace("root", b"B", expected=first))
        applied(
            store.replace("root", b"A", expected=second)
        )  # never happens in the product: its bodies are unique
        assert isinstance(store.release(), Applied) is again
        assert body_of(inner, "root") == (b"B" if again else b"A")


def test_an_unavailable_store_is_never_reached(inner: MemoryStore) -> None:
    store = FaultyStore(inner, lambda call: Fault.UNAVAILABLE)
    for call in (
        lambda: store.get("a"),
        lambda: store.list(""),
        lambda: store.delete(["a"]),
        lambda: store.create("a", b"x"),
        lambda: store.replace("a", b"x", expected=ETag('"1"')),
    ):
        with pytest.raises(StoreUnavailable, match="fails by injection"):
            call()
    assert [call.verb for call in store.calls] == ["get", "list", "delete", "create", "replace"]
    assert [*inner.list("")] == []


def test_a_deletion_can_take_effect_without_an_answer(inner: MemoryStore) -> None:
    inner.create("a", b"x")
    store = FaultyStore(inner, script({0: Fault.LOSE_REPLY}))
    with pytest.raises(StoreUnavailable):
        store.delete(["a"])
    assert inner.get("a") is None


@pytest.mark.parametrize(
    ("fault", "is_applied"), [(Fault.KILL_BEFORE, False), (Fault.KILL_AFTER, True)]
)
def test_a_killed_caller_makes_no_further_call(
    inner: MemoryStore, fault: Fault, is_applied: bool
) -> None:
    store = FaultyStore(inner, script({1: fault}))
    store.get("a")
    with pytest.raises(Killed):
        store.create("a", b"x")
    assert (inner.get("a") is not None) is is_applied
    for call in (
        lambda: store.get("a"),
        lambda: store.create("b", b"x"),
        lambda: store.delete(["a"]),
    ):
        with pytest.raises(Killed, match="is dead"):
            call()
    assert (inner.get("a") is not None) is is_applied
    assert len(store.calls) == 2


def test_killed_is_not_an_exception_that_code_catches() -> None:
    assert not issubclass(Killed, Exception)


@pytest.mark.parametrize("fault", Fault)
def test_a_scripted_fault_that_does_not_apply_to_the_call_is_an_error(
    inner: MemoryStore, fault: Fault
) -> None:
    store = FaultyStore(inner, script({0: fault}))
    if fault in APPLICABLE["get"]:
        with pytest.raises((StoreUnavailable, Killed)):
            store.get("a")
    else:
        with pytest.raises(ValueError, match=f"call 0 is get a, and {fault} does not apply"):
            store.get("a")


def test_fired_faults_are_recorded(inner: MemoryStore) -> None:
    store = FaultyStore(inner, script({1: Fault.DROP, 7: Fault.DROP}))
    store.create("a", b"x")
    store.create("b", b"x")
    assert [(fired.call, fired.fault) for fired in store.fired] == [
        (Call(index=1, verb="create", key="b"), Fault.DROP)
    ]


def trace(seed: int, rate: float) -> list[str]:
    store = FaultyStore(
        MemoryStore(),
        seeded(seed, rate=rate, faults=set(Fault) - {Fault.KILL_BEFORE, Fault.KILL_AFTER}),
    )
    results: list[str] = []
    for number in range(60):
        try:
            outcome: Outcome | object = (
                store.create(f"k{number % 7}", b"x") if number % 3 else store.get("k1")
            )
            results.append(repr(outcome))
        except StoreUnavailable as error:
            results.append(str(error))
    return results


def test_the_same_seed_gives_the_same_history() -> None:
    assert trace(1, 0.5) == trace(1, 0.5)
    assert trace(1, 0.5) != trace(2, 0.5)
    assert trace(3, 0.0) == trace(4, 0.0)


def test_seeded_faults_fit_their_calls_and_come_at_their_rate() -> None:
    plan = seeded(5, rate=0.25)
    drawn = [
        (verb, plan(Call(index=n, verb=verb, key="a"))) for n in range(1000) for verb in APPLICABLE
    ]
    hits = [(verb, fault) for verb, fault in drawn if fault is not None]
    assert all(fault in APPLICABLE[verb] for verb, fault in hits)
    assert {fault for verb, fault in hits if verb == "replace"} == set(Fault)
    assert 0.2 < len(hits) / len(drawn) < 0.3
    assert no_faults(Call(index=0, verb="get", key="a")) is None


class ChecksThenWrites(MemoryStore):
    """A broken store that the race suite must detect: all writers check, and only then do they write."""

    def __init__(self, writers: int) -> None:
        super().__init__()
        self._all_checked = threading.Barrier(writers, timeout=30)

    def create(self, key: str, body: bytes | Path) -> Outcome:
        found = self.get(key)
        self._all_checked.wait()
        if found is not None:
            return NotApplied(because="exists")
        self.delete([key])
        super().create(key, body)
        return Applied(etag=ETag('"mine"'))


def test_the_race_suite_detects_a_store_that_checks_and_then_writes() -> None:
    suite = StoreRaceContract()
    with pytest.raises(
        AssertionError, match=f"{suite.creators} of {suite.creators} creates were applied"
    ):
        suite.test_a_create_race_has_one_winner_and_the_winners_bytes(
            ChecksThenWrites(suite.creators)
        )


class LosesWrites(MemoryStore):
    """A broken store that the counter must detect: every tenth replace is acknowledged and not applied."""

    def __init__(self) -> None:
        super().__init__()
        self._replaced = 0

    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        self._replaced += 1
        if self._replaced % 10 == 0:
            return Applied(etag=expected)
        return super().replace(key, body, expected=expected)


def test_the_race_suite_detects_a_store_that_loses_an_acknowledged_write() -> None:
    with pytest.raises(AssertionError, match="acknowledged, and the counter holds"):
        StoreRaceContract().test_no_acknowledged_increment_is_lost(LosesWrites())
