"""Random schedules of publishers of registrations, commits, kills and collections.

Publishers are greenlets that are switched before each effect, so any of them may sleep or die at any of them. A pointer
must never go back, never name something that is gone, and end at the last commit.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import greenlet
import pytest

from simulation import registering_mutants as mutants
from support.catalogs import (
    COMPANY,
    FakeCatalog,
    FakeRegistrar,
    register_all,
    registered_lake,
    wanted_pointers,
)
from support.small_lake import SmallLake, days
from tallystick.operations import register as register_module
from tallystick.operations.gc import collect
from tallystick.protocol.registering import pending
from tallystick.tables.reach import IcebergReach

SCHEDULES = 25
TURNS = 60
COMMITS_MAX = 4
PUBLISHERS = 3


class Schedule:
    """One random schedule. `failed`: the kinds of errors that publishers reported."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.small, self.catalog = registered_lake(), FakeCatalog()
        self.publishers: list[Any] = []
        self.failed: set[str] = set()
        self.registered: list[int] = []
        self.commits = self.killed = self.collected = 0

    def run(self) -> None:
        """Take the turns, then let the last publisher finish alone, and check the end."""
        self.commit()
        for _ in range(TURNS):
            turns = [self.resume] * 12 + [self.start] * 2 + [self.commit, self.kill, self.gc]
            self.random.choice(turns)()
            self.check()
        while self.publishers:
            self.resume()
            self.check()
        _, failed = register_all(self.small, FakeRegistrar(self.catalog))
        self.check()
        assert not failed
        assert self.catalog.pointers == wanted_pointers(self.small)
        assert pending(self.small.lake.load_existing().root) == ()
        # Another publisher's work may be in the way in each round, and nothing else.
        assert self.failed <= {"output_busy"}

    def commit(self) -> None:
        """Replace the only day: all tables change, and the files of the last commit are dropped."""
        if self.commits < COMMITS_MAX:
            self.small.job = f"version {self.commits}".encode()
            self.small.run(days(1, 2), clear=self.commits)
            self.commits += 1

    def start(self) -> None:
        """Start a publisher."""
        if len(self.publishers) < PUBLISHERS:
            self.publishers.append(greenlet.greenlet(self._publish))

    def resume(self) -> None:
        """Let a publisher go on to its next effect."""
        if self.publishers:
            chosen = self.random.choice(self.publishers)
            chosen.switch()
            if chosen.dead:
                self.publishers.remove(chosen)

    def kill(self) -> None:
        """End a publisher where it is."""
        if self.publishers:
            chosen = self.publishers.pop(self.random.randrange(len(self.publishers)))
            chosen.throw()
            self.killed += 1

    def gc(self) -> None:
        """Collect all that gc collects, of readers that need only the newest version."""
        collect(
            self.small.lake, IcebergReach(self.small.store), reader_grace=timedelta(0), delete=True
        )
        self.collected += 1

    def check(self) -> None:
        """Check what must be true after each turn."""
        for table, uri in self.catalog.pointers.items():
            numbers = self.catalog.numbers(table)
            assert numbers == sorted(set(numbers)), f"{table} went back: {numbers}"
            key = uri.removeprefix(f"{self.small.store.uri}/")
            assert self.small.store.get(key) is not None, f"{key} is gone"
        root = self.small.lake.load_existing().root
        has = root.registrations[COMPANY].registered
        if has is not None:
            self.registered.append(int(has.split("/")[1][:12]))
        assert self.registered == sorted(self.registered), "the registered version went back"

    def _publish(self) -> None:
        _, failed = register_all(self.small, FakeRegistrar(self.catalog, pause))
        self.failed |= {one.error.kind for one in failed}


def pause(_: object = None) -> None:
    """Switch to the schedule, if this is a publisher of it."""
    parent = greenlet.getcurrent().parent
    if parent is not None:
        parent.switch()


def paused(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a step of `register` that is preceded by a pause."""

    def step(*of: Any) -> Any:
        pause()
        return real(*of)

    return step


def steps_paused() -> AbstractContextManager[Any]:
    """Also pause before the root is read, and before the version is recorded."""
    return patch.multiple(
        register_module,
        _wanted=paused(register_module._wanted),
        _note=paused(register_module._note),
    )


def explore(seeds: range) -> list[Schedule]:
    """Run schedules; raise AssertionError with the seed of the first that breaks a rule."""
    done: list[Schedule] = []
    with steps_paused():
        for seed in seeds:
            schedule = Schedule(seed)
            try:
                schedule.run()
            except Exception as error:
                raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
            done.append(schedule)
    return done


def test_no_schedule_sets_a_pointer_back_or_lets_it_name_what_is_gone() -> None:
    done = explore(range(SCHEDULES))
    # The schedules must contain what they are for.
    assert sum(one.killed for one in done) > SCHEDULES
    assert sum(one.collected for one in done) > SCHEDULES
    assert (
        sum(len(numbers) for one in done for numbers in one.catalog.history.values())
        > 3 * SCHEDULES
    )


@pytest.mark.parametrize(
    "mutant",
    [
        mutants.a_later_pointer_is_set_back,
        mutants.a_change_has_no_condition,
        mutants.the_registered_version_goes_back,
        mutants.gc_forgets_the_pointers,
    ],
    ids=lambda m: m.__name__,
)
def test_each_removed_guard_is_detected_by_a_schedule(mutant: mutants.Mutant) -> None:
    with mutant(), pytest.raises(AssertionError, match=r"^seed \d+: "):
        explore(range(4 * SCHEDULES))


def test_a_schedule_is_the_same_for_the_same_seed() -> None:
    (one,), (same,) = explore(range(7, 8)), explore(range(7, 8))
    assert one.catalog.history == same.catalog.history
    assert isinstance(one.small, SmallLake)
