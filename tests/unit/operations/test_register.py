"""Registrations have the last commit: after kills, with concurrent publishers, and with commits meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from simulation.registering_mutants import MUTANTS
from support.catalogs import (
    COMPANY,
    DeclaredCatalog,
    FakeCatalog,
    FakeRegistrar,
    die_at,
    register_all,
    registered_lake,
    wanted_pointers,
)
from support.fake_output import Killed
from support.small_lake import SmallLake, days
from tallystick.errors import InvalidPipeline, OutputRefused, OutputUnavailable
from tallystick.format import keys
from tallystick.format.registrations import Registration
from tallystick.operations.gc import collect
from tallystick.operations.publish import NotPublished
from tallystick.operations.register import register
from tallystick.operations.status import problems, read_status
from tallystick.protocol import registering
from tallystick.protocol.registering import pending
from tallystick.tables.reach import IcebergReach


def registration(small: SmallLake, name: str = COMPANY) -> Registration:
    """Return the state of a registration in the root."""
    return small.lake.load_existing().root.registrations[name]


def record(small: SmallLake) -> keys.RecordKey:
    """Return the record of the last commit."""
    found = small.lake.load_existing().root.record
    assert found is not None
    return found


# ---------------------------------------------------------------- normal operation


def test_a_commit_is_pending_until_all_its_tables_are_registered() -> None:
    small, catalog = registered_lake(), FakeCatalog()
    small.run(days(1, 2))
    assert pending(small.lake.load_existing().root) == (COMPANY,)
    done, failed = register_all(small, FakeRegistrar(catalog))
    assert not failed
    assert [(d.registration, d.version, d.tables) for d in done] == [
        (COMPANY, keys.record_version(record(small)), 3)
    ]
    assert catalog.pointers == wanted_pointers(small)
    assert registration(small).registered == record(small)
    small.run(days(3, 4))
    register_all(small, FakeRegistrar(catalog))
    assert catalog.pointers == wanted_pointers(small)
    assert catalog.numbers("events") == [0, 1]


def test_nothing_is_opened_and_no_swap_is_made_if_nothing_is_pending() -> None:
    small, registrar = registered_lake(), FakeRegistrar(FakeCatalog())
    small.run(days(1, 2))
    register_all(small, registrar)
    version = small.lake.load_existing().root.version
    assert registrar.closed == 1

    def opened() -> FakeRegistrar:
        raise AssertionError

    targets = {COMPANY: "memory:company"}
    assert register(small.lake, {COMPANY: opened}, targets=targets) == ()
    assert small.lake.load_existing().root.version == version


def test_the_plan_task_declares_a_registration_so_that_the_commit_is_pending_for_it() -> None:
    small = registered_lake()
    small.plan(days(1, 2))
    assert registration(small) == Registration(target="memory:company")
    assert pending(small.lake.load_existing().root) == ()  # nothing is committed yet


def test_a_registration_that_is_declared_later_gets_the_last_commit() -> None:
    small, catalog = SmallLake(), FakeCatalog()
    small.run(days(1, 2))
    small.declared = registered_lake().declared
    before = record(small)
    done, _ = register_all(small, FakeRegistrar(catalog))
    assert catalog.pointers == wanted_pointers(small)
    assert [d.version for d in done] == [keys.record_version(before)]
    assert registration(small).since == before


def test_a_registration_that_is_removed_keeps_its_pointers_and_is_not_pending() -> None:
    small, catalog = registered_lake(), FakeCatalog()
    small.run(days(1, 2))
    register_all(small, FakeRegistrar(catalog))
    pointers = dict(catalog.pointers)
    small.declared = SmallLake().declared
    small.run(days(3, 4))
    assert not registration(small).declared
    assert pending(small.lake.load_existing().root) == ()
    assert catalog.pointers == pointers


def test_another_target_of_a_name_is_refused_by_plan_and_by_publish() -> None:
    small = registered_lake()
    small.run(days(1, 2))
    other = registered_lake(DeclaredCatalog(target="memory:other"))
    small.declared = other.declared
    with pytest.raises(InvalidPipeline, match=r"memory:company as in the lake, found memory:other"):
        small.plan(days(3, 4))
    _, failed = register_all(small, FakeRegistrar(FakeCatalog()))
    assert [type(f.error) for f in failed] == [InvalidPipeline]


def test_a_table_that_left_the_pipeline_keeps_its_pointer() -> None:
    small, catalog = registered_lake(), FakeCatalog()
    small.run(days(1, 2))
    register_all(small, FakeRegistrar(catalog))
    whole = small.declared
    small.declared = lambda uri: replace(
        whole(uri), tables=[t for t in whole(uri).tables if t.name != "per_kind"]
    )
    small.run(days(3, 4))
    register_all(small, FakeRegistrar(catalog))
    assert catalog.numbers("per_kind") == [0]
    assert catalog.numbers("events") == [0, 1]


# ---------------------------------------------------------------- crashes and concurrent publishers

STEPS = [
    "read",
    *(f"{w} {t}" for t in ("dead_letters", "events", "per_kind") for w in ("before", "after")),
    "end",
]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("first", [True, False])
def test_the_pointers_are_right_after_the_retry_of_a_publisher_killed_at_any_step(
    step: str, first: bool
) -> None:
    small, catalog = registered_lake(), FakeCatalog()
    small.run(days(1, 2))
    if not first:
        register_all(small, FakeRegistrar(catalog))
        small.run(days(3, 4))
    with pytest.raises(Killed):
        register_all(small, FakeRegistrar(catalog, die_at(step)))
    assert pending(small.lake.load_existing().root) == (COMPANY,)
    assert not register_all(small, FakeRegistrar(catalog))[1]
    assert catalog.pointers == wanted_pointers(small)
    assert pending(small.lake.load_existing().root) == ()
    assert all(catalog.numbers(t) == sorted(set(catalog.numbers(t))) for t in catalog.history)


@pytest.mark.parametrize("step", STEPS)
def test_a_publisher_that_is_killed_leaves_a_later_commit_to_the_next_one(step: str) -> None:
    small, catalog = registered_lake(), FakeCatalog()
    small.run(days(1, 2))
    with pytest.raises(Killed):
        register_all(small, FakeRegistrar(catalog, die_at(step)))
    small.run(days(3, 4))
    register_all(small, FakeRegistrar(catalog))
    assert catalog.pointers == wanted_pointers(small)


def late_publisher(small: SmallLake, catalog: FakeCatalog, step: str) -> tuple[Any, ...]:
    """Let a publisher sleep at a step, while a commit is made and another publisher registers it."""
    slept: list[str] = []

    def sleep(name: str) -> None:
        if name == step and not slept:
            slept.append(name)
            small.run(days(3, 4))
            register_all(small, FakeRegistrar(catalog))

    return register_all(small, FakeRegistrar(catalog, sleep))[1]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("first", [True, False])
def test_a_publisher_that_is_late_sets_no_pointer_back(step: str, first: bool) -> None:
    small, catalog = registered_lake(), FakeCatalog()
    small.run(days(1, 2))
    if not first:
        register_all(small, FakeRegistrar(catalog))
        small.run(days(2, 3))
    assert late_publisher(small, catalog, step) == ()
    assert catalog.pointers == wanted_pointers(small)
    assert all(catalog.numbers(t) == sorted(set(catalog.numbers(t))) for t in catalog.history)
    assert registration(small).registered == record(small)


@pytest.mark.parametrize("step", STEPS)
def test_a_late_publisher_of_a_catalog_without_conditions_ends_with_the_last_commit(
    step: str,
) -> None:
    """It may set a pointer back for a moment, and then registers the last commit itself."""
    small, catalog = registered_lake(), FakeCatalog(checked=False)
    small.run(days(1, 2))
    register_all(small, FakeRegistrar(catalog))
    small.run(days(2, 3))
    assert late_publisher(small, catalog, step) == ()
    assert catalog.pointers == wanted_pointers(small)
    assert registration(small).registered == record(small)


# ---------------------------------------------------------------- refusals


def test_a_table_of_another_lake_is_refused_and_nothing_is_changed() -> None:
    small, catalog = registered_lake(), FakeCatalog()
    small.run(days(1, 2))
    other = "s3://finance/ledger/tables/events/metadata/00003-x.metadata.json"
    catalog.pointers["events"] = other
    failed = only_failure(small, FakeRegistrar(catalog))
    assert isinstance(failed.error, OutputRefused)
    assert other in failed.error.message
    assert small.lake.where("tables/events/metadata/") in failed.error.message
    assert catalog.history == {}
    assert registration(small).registered is None


def test_a_pointer_that_is_later_than_the_lake_is_refused() -> None:
    small, catalog = registered_lake(), FakeCatalog()
    small.run(days(1, 2))
    later = small.lake.where("tables/events/metadata/00009-x.metadata.json")
    catalog.pointers["events"] = later
    failed = only_failure(small, FakeRegistrar(catalog))
    assert isinstance(failed.error, OutputRefused)
    assert later in failed.error.message
    assert "set back" in failed.error.hint
    assert catalog.history == {}


def test_a_registration_that_fails_delays_no_other() -> None:
    small, catalog = (
        registered_lake(DeclaredCatalog(), DeclaredCatalog(name="b", target="m:b")),
        FakeCatalog(),
    )
    small.run(days(1, 2))

    def broken() -> FakeRegistrar:
        raise ZeroDivisionError("own class")

    failed = register(
        small.lake,
        {COMPANY: broken, "b": lambda: FakeRegistrar(catalog)},
        targets={COMPANY: "memory:company", "b": "m:b"},
    )
    assert [(f.output, type(f.error)) for f in failed] == [(COMPANY, OutputUnavailable)]
    assert "ZeroDivisionError: own class" in failed[0].error.message
    assert catalog.pointers == wanted_pointers(small)


def test_a_catalog_that_is_always_busy_ends_as_an_error() -> None:
    small, catalog = registered_lake(), FakeCatalog()
    small.run(days(1, 2))

    def interfere(step: str) -> None:
        catalog.pointers = {"dead_letters": step} if step == "before dead_letters" else {}

    assert only_failure(small, FakeRegistrar(catalog, interfere)).error.kind == "output_busy"


def only_failure(small: SmallLake, registrar: FakeRegistrar) -> NotPublished:
    """Register, and return the only failure."""
    failed = register_all(small, registrar)[1]
    assert len(failed) == 1
    return failed[0]


# ---------------------------------------------------------------- gc and status


def test_gc_keeps_every_version_that_a_pointer_may_name() -> None:
    small, catalog = registered_lake(), FakeCatalog()
    small.run(days(1, 2))
    register_all(small, FakeRegistrar(catalog))
    pointers = dict(catalog.pointers)
    small.job = b"version 2"
    # A replacement drops the files of the first commit, and a publisher dies after its first pointer.
    small.run(days(1, 2), clear=1)
    with pytest.raises(Killed):
        register_all(small, FakeRegistrar(catalog, die_at("after dead_letters")))
    half = dict(catalog.pointers)
    assert half != pointers
    small.job = b"version 3"
    small.run(days(1, 2), clear=2)
    collected(small)
    for uri in {*pointers.values(), *half.values()}:
        readable(small, uri)
    register_all(small, FakeRegistrar(catalog))
    collected(small)
    gone = [uri for uri in pointers.values() if small.store.get(key_of(small, uri)) is None]
    assert len(gone) == 3
    for uri in catalog.pointers.values():
        readable(small, uri)


def test_gc_keeps_no_old_version_for_a_registration_that_was_removed() -> None:
    small, catalog = registered_lake(), FakeCatalog()
    small.run(days(1, 2))
    register_all(small, FakeRegistrar(catalog))
    small.declared = SmallLake().declared
    small.job = b"version 2"
    small.run(days(1, 2), clear=1)
    collected(small)
    assert small.store.get(key_of(small, catalog.pointers["events"])) is None


def key_of(small: SmallLake, uri: str) -> str:
    """Return the key of an object below the lake from its URI."""
    return uri.removeprefix(f"{small.store.uri}/")


def collected(small: SmallLake) -> None:
    """Delete all that gc deletes, of readers that need only the newest version."""
    collect(small.lake, IcebergReach(small.store), reader_grace=timedelta(0), delete=True)


def readable(small: SmallLake, uri: str) -> None:
    """Check that the metadata and everything that it reaches exists."""
    assert small.store.get(key_of(small, uri)) is not None, uri
    for key in IcebergReach(small.store).reached([key_of(small, uri)]):
        assert small.store.get(key) is not None, key


def test_status_shows_a_pending_registration_with_its_version() -> None:
    small, catalog = registered_lake(), FakeCatalog()
    small.run(days(1, 2))
    (first,) = read_status(small.lake).unregistered
    assert (first.registration, first.target, first.registered) == (COMPANY, "memory:company", None)
    register_all(small, FakeRegistrar(catalog))
    status = read_status(small.lake)
    assert status.registrations == {COMPANY: "memory:company"}
    assert (status.unregistered, problems(status).get("pending")) == ((), None)
    had = keys.record_version(record(small))
    small.run(days(3, 4))
    status = read_status(small.lake)
    (lacks,) = status.unregistered
    assert (lacks.registered, lacks.version) == (had, keys.record_version(record(small)))
    assert problems(status)["pending"] == 1


# ---------------------------------------------------------------- removed guards


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.__name__)
def test_each_removed_guard_is_detected(mutant: Callable[[], Any]) -> None:
    with mutant(), pytest.raises(AssertionError):
        claims()


def test_the_claims_hold_with_all_guards() -> None:
    claims()


def claims() -> None:
    """Check what the guards protect."""
    for step in ("before dead_letters", "after events"):
        test_a_publisher_that_is_late_sets_no_pointer_back(step, first=False)
        test_a_late_publisher_of_a_catalog_without_conditions_ends_with_the_last_commit(step)
    test_a_table_of_another_lake_is_refused_and_nothing_is_changed()
    test_a_pointer_that_is_later_than_the_lake_is_refused()
    test_gc_keeps_every_version_that_a_pointer_may_name()
    earlier, later = (keys.record(version, 32 * "a") for version in (3, 4))
    known = {COMPANY: Registration(target="memory:company", registered=later)}
    assert registering.with_registered(known, COMPANY, earlier) is None
