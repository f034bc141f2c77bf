"""The counted store: it passes the contract of a store, and counts each request once, by verb and outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from support.small_lake import SmallLake, days
from tallystick.errors import InvalidPipeline, OutcomeUnknown, StoreUnavailable
from tallystick.format import keys
from tallystick.lake import Lake, NoUpdate, Snapshot, Update
from tallystick.store import ETag, Store
from tallystick.store.counted import CountedStore, RequestCounts
from tallystick.store.memory import MemoryStore
from tallystick_devstack.testing.faults import Call, Fault, FaultyStore
from tallystick_devstack.testing.store_contract import StoreContract, StoreRaceContract, applied

ROOT = keys.ROOT


class TestCountedStore(StoreContract, StoreRaceContract):
    @pytest.fixture
    def store(self) -> CountedStore:
        return CountedStore(MemoryStore(), RequestCounts(swap_key=ROOT))


@pytest.fixture
def counts() -> RequestCounts:
    return RequestCounts(swap_key=ROOT)


def faulty(store: Store, counts: RequestCounts, **faults: Fault) -> CountedStore:
    """Return a counted store whose first request of a verb fails, e.g. `get=Fault.REFUSE`."""
    left = dict(faults)
    return CountedStore(FaultyStore(store, lambda call: left.pop(call.verb, None)), counts)


def delete(store: CountedStore) -> None:
    store.delete(["a", "b"])


@pytest.mark.parametrize(
    ("call", "ending"),
    [
        (lambda s: s.get("there"), ("get", "found")),
        (lambda s: s.get("absent"), ("get", "missing")),
        (lambda s: s.create("new", b"x"), ("create", "applied")),
        (lambda s: s.create("there", b"x"), ("create", "not_applied")),
        (lambda s: s.replace("there", b"x", expected=ETag("?")), ("replace", "not_applied")),
        (lambda s: s.replace("absent", b"x", expected=ETag("?")), ("replace", "not_applied")),
        (lambda s: list(s.list("")), ("list", "found")),
        (lambda s: list(s.list("no/")), ("list", "missing")),
        (lambda s: next(iter(s.list(""))), ("list", "found")),
        (delete, ("delete", "applied")),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_each_call_is_counted_once_with_its_outcome(
    counts: RequestCounts, call: Callable[[CountedStore], object], ending: tuple[str, str]
) -> None:
    inner = MemoryStore()
    inner.create("there", b"x")
    call(CountedStore(inner, counts))
    assert counts.requests == {ending: 1}
    assert counts.swap_retries == 0


def test_an_applied_replace_and_an_unknown_write_are_counted(counts: RequestCounts) -> None:
    inner = MemoryStore()
    root = applied(inner.create("other", b"x"))
    store = faulty(inner, counts, create=Fault.DROP)
    store.create("new", b"x")
    store.replace("other", b"y", expected=root)
    assert counts.requests == {("create", "unknown"): 1, ("replace", "applied"): 1}


@pytest.mark.parametrize("verb", ["get", "create", "replace", "list", "delete"])
def test_a_request_that_raises_is_counted_as_an_error(counts: RequestCounts, verb: str) -> None:
    store = faulty(MemoryStore(), counts, **{verb: Fault.UNAVAILABLE})
    calls: Mapping[str, Callable[[], object]] = {
        "get": lambda: store.get("a"),
        "create": lambda: store.create("a", b"x"),
        "replace": lambda: store.replace("a", b"x", expected=ETag("?")),
        "list": lambda: list(store.list("")),
        "delete": lambda: store.delete(["a"]),
    }
    with pytest.raises(StoreUnavailable):
        calls[verb]()
    assert counts.requests == {(verb, "error"): 1}


def test_a_key_that_is_not_allowed_is_an_error_of_the_request(counts: RequestCounts) -> None:
    with pytest.raises(InvalidPipeline):
        CountedStore(MemoryStore(), counts).get("/")
    assert counts.requests == {("get", "error"): 1}


def test_requests_of_many_threads_are_all_counted(counts: RequestCounts) -> None:
    store = CountedStore(MemoryStore(), counts)
    with ThreadPoolExecutor(max_workers=8) as threads:
        list(threads.map(lambda number: store.create(f"k/{number}", b"x"), range(400)))
    assert counts.requests == {("create", "applied"): 400}


def test_the_wrapper_shows_the_store_that_it_wraps(counts: RequestCounts) -> None:
    inner = MemoryStore("inner")
    store = CountedStore(inner, counts)
    assert (store.uri, repr(store)) == (inner.uri, repr(inner))


# ---------------------------------------------------------------- swaps


def bump(snapshot: Snapshot) -> Update[int] | NoUpdate[int]:
    """Raise the version of the root by one, once."""
    if snapshot.root.version > 3:
        return NoUpdate(value=snapshot.root.version)
    ledger = snapshot.ledger(days(1, 2).start, days(1, 2).end)
    root = snapshot.root
    return Update(tables=root.tables, topics=root.topics, ledger=ledger, value=root.version + 1)


@pytest.mark.parametrize(
    ("faults", "retries"),
    [((), 0), ((Fault.DROP,), 1), ((Fault.LOSE_REPLY,), 2), ((Fault.DROP, Fault.DROP), 2)],
    ids=["none", "a lost request", "a lost reply", "two lost requests"],
)
def test_retries_of_a_swap_are_the_writes_of_the_root_that_did_not_certainly_land(
    counts: RequestCounts, faults: tuple[Fault, ...], retries: int
) -> None:
    small = SmallLake()
    small.run(days(1, 2))
    left = iter(faults)

    def plan(call: Call) -> Fault | None:
        return next(left, None) if (call.verb, call.key) == ("replace", ROOT) else None

    store = CountedStore(FaultyStore(small.store, plan), counts)
    assert Lake(store, small.runtime, proven=True).swap(bump) == 4
    assert counts.swap_retries == retries
    # After a lost reply, the second try finds another ETag, and the swap finds its own update.
    landed = 0 if faults == (Fault.LOSE_REPLY,) else 1
    assert counts.requests.get(("replace", "applied"), 0) == landed


def test_a_swap_that_loses_a_race_is_a_retry(counts: RequestCounts) -> None:
    small = SmallLake()
    small.run(days(1, 2))
    others = iter([True])

    def overtaken(snapshot: Snapshot) -> Update[int] | NoUpdate[int]:
        change = bump(snapshot)
        if next(others, False):
            small.run(days(2, 3))
        return replace(change, then_raise=None)

    Lake(CountedStore(small.store, counts), small.runtime, proven=True).swap(overtaken)
    assert counts.swap_retries == counts.requests["replace", "not_applied"] == 1


def test_a_swap_whose_outcome_stays_unknown_counts_every_try(counts: RequestCounts) -> None:
    small = SmallLake()
    small.run(days(1, 2))
    clock = iter(range(0, 10**6, 30))
    runtime = replace(small.runtime, monotonic_s=lambda: float(next(clock)))
    store = CountedStore(FaultyStore(small.store, _drop_root), counts)
    with pytest.raises(OutcomeUnknown):
        Lake(store, runtime, proven=True).swap(bump)
    assert counts.swap_retries == counts.requests["replace", "unknown"] > 1


def _drop_root(call: Call) -> Fault | None:
    return Fault.DROP if (call.verb, call.key) == ("replace", ROOT) else None
