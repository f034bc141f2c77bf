"""Outputs under random schedules of the real plan, commit, publish and gc code, and the guards that they rest on."""

from __future__ import annotations

import os

import pytest

from simulation.publishing import PublishingSchedule, explore_publishing
from simulation.publishing_mutants import MUTANTS
from tallystick.lake import Snapshot, lake
from tallystick.lake.room import Giving

# A slow machine with other tests beside takes ten times as long as a quiet one.
pytestmark = pytest.mark.timeout(1800)
SEED = int(os.environ.get("TALLYSTICK_SEED", "1"))
STRETCHES, PER_STRETCH = 2, 1_000
MUTANT_SCHEDULES_MAX = 2_000


@pytest.mark.parametrize("stretch", range(STRETCHES))
def test_every_receiver_holds_what_is_committed_each_row_once(stretch: int) -> None:
    sent, broken = explore_publishing(SEED + stretch * PER_STRETCH, PER_STRETCH)
    assert not broken, f"{broken}\nreplay: PublishingSchedule({broken[0][0]}).run()"
    # An explorer in which nothing is ever sent would prove nothing.
    assert sent > PER_STRETCH


def test_the_explorer_meets_publishers_that_pause_and_commits_that_begin_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    met: set[str] = set()
    asked, check = Giving._asked, Snapshot.check_still_there

    def noted_pause(self: Giving, now_s: float) -> bool:
        if found := asked(self, now_s):
            met.add("a pause")
        return found

    def noted_check(self: Snapshot) -> None:
        try:
            check(self)
        except lake.RootMoved:
            met.add("a commit that begins again")
            raise

    monkeypatch.setattr(Giving, "_asked", noted_pause)
    monkeypatch.setattr(Snapshot, "check_still_there", noted_check)
    _, broken = explore_publishing(SEED, 60)
    assert not broken
    assert met == {"a pause", "a commit that begins again"}


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_dropped_guard_of_publishing_is_noticed(name: str) -> None:
    with MUTANTS[name]():
        _, broken = explore_publishing(SEED, MUTANT_SCHEDULES_MAX)
    assert broken, f"{MUTANT_SCHEDULES_MAX} schedules without {name!r} noticed nothing"


def test_the_same_seed_tells_the_same_story_with_an_output() -> None:
    for seed in range(SEED, SEED + 10):
        first, second = PublishingSchedule(seed), PublishingSchedule(seed)
        assert first.run() == second.run()
        assert first.sim.trace == second.sim.trace
        assert first.wire.messages == second.wire.messages
