"""Outputs under random schedules of the real plan, commit, publish and gc code, and the guards that they need."""

from __future__ import annotations

import os

import pytest

from simulation.publishing import PublishingSchedule, explore_publishing
from simulation.publishing_mutants import MUTANTS
from tallystick.lake import Snapshot, lake
from tallystick.lake.room import RoomGiver

# A slow machine with concurrent tests takes ten times as long as an idle one.
pytestmark = pytest.mark.timeout(1800)
SEED = int(os.environ.get("TALLYSTICK_SEED", "1"))
RANGES, PER_RANGE = 10, 200
LONG_FROM = 1  # the ranges from here on are left to `make test-long`
MUTANT_SCHEDULES = 500
# A seed that detects a mutant which few schedules detect: it is tried before all others, because it is cheaper.
DETECTED_AT = {
    "gc ignores outputs": 63,
    "in progress is cleared by a commit": 27,
    "in progress is not recorded": 24,
    "newest first": 50,
    "past a partly sent interval": 50,
    "refusal is ignored": 21,
    "two intervals are in progress": 385,
}


@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=[pytest.mark.long] if n >= LONG_FROM else []) for n in range(RANGES)],
)
def test_every_receiver_has_each_committed_row_once(number: int) -> None:
    sent, broken = explore_publishing(SEED + number * PER_RANGE, PER_RANGE)
    assert not broken, f"{broken}\nreplay: PublishingSchedule({broken[0][0]}).run()"
    # An explorer that sends nothing would prove nothing.
    assert sent > PER_RANGE


def test_every_receiver_has_each_committed_row_once_in_the_schedules_that_detect_mutants() -> None:
    played = [explore_publishing(seed, 1) for seed in set(DETECTED_AT.values())]
    assert [broken for _, broken in played] == [[]] * len(played)
    assert sum(sent for sent, _ in played) > len(played)


def test_the_explorer_includes_publishers_that_pause_and_commits_that_start_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached: set[str] = set()
    asked, check = RoomGiver._is_requested, Snapshot.check_still_there

    def noted_pause(self: RoomGiver, now_s: float) -> bool:
        if found := asked(self, now_s):
            reached.add("a pause")
        return found

    def noted_check(self: Snapshot) -> None:
        try:
            check(self)
        except lake.RootMovedError:
            reached.add("a commit that starts again")
            raise

    monkeypatch.setattr(RoomGiver, "_is_requested", noted_pause)
    monkeypatch.setattr(Snapshot, "check_still_there", noted_check)
    wanted = {"a pause", "a commit that starts again"}
    for seed in range(SEED, SEED + 60):
        _, broken = explore_publishing(seed, 1)
        assert not broken
        if reached == wanted:
            break
    assert reached == wanted


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_dropped_guard_of_publishing_is_detected(name: str) -> None:
    with MUTANTS[name]():
        _, broken = explore_publishing(DETECTED_AT.get(name, SEED), 1)
        if not broken:
            _, broken = explore_publishing(SEED, MUTANT_SCHEDULES)
    assert broken, f"{MUTANT_SCHEDULES} schedules did not detect {name!r}"


def test_the_same_seed_gives_the_same_schedule_with_an_output() -> None:
    for seed in range(SEED, SEED + 10):
        first, second = PublishingSchedule(seed), PublishingSchedule(seed)
        assert first.run() == second.run()
        assert first.sim.trace == second.sim.trace
        assert first.wire.messages == second.wire.messages
