"""The promise under 20,000 random schedules of the real plan, commit and swap code, and the guards it rests on."""

from __future__ import annotations

import os

import pytest

from simulation.explorer import Schedule, explore
from simulation.mutants import MUTANTS, Mutant

# A slow machine with other tests beside takes ten times as long as a quiet one.
pytestmark = pytest.mark.timeout(1800)
SEED = int(os.environ.get("TALLYSTICK_SEED", "1"))
STRETCHES, PER_STRETCH = 8, 2_500
MUTANT_SCHEDULES_MAX = 3_000


@pytest.mark.parametrize("stretch", range(STRETCHES))
def test_no_schedule_breaks_the_promise(stretch: int) -> None:
    found = explore(SEED + stretch * PER_STRETCH, PER_STRETCH)
    story = "".join(
        f"\nseed {seed}: {broken}\nreplay: python tests/simulation/explore.py --show {seed}"
        for seed, broken in found.violations
    )
    assert not found.violations, story
    assert found.schedules == PER_STRETCH
    # An explorer in which nothing is ever committed would prove nothing.
    assert found.commits > found.schedules


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_dropped_guard_is_noticed(name: str) -> None:
    mutant: Mutant = MUTANTS[name]
    with mutant():
        found = explore(SEED, MUTANT_SCHEDULES_MAX)
    assert found.violations, f"{found.schedules} schedules without {name!r} noticed nothing"


def test_the_same_seed_tells_the_same_story() -> None:
    for seed in range(SEED, SEED + 20):
        first, second = Schedule(seed), Schedule(seed)
        assert first.run() == second.run()
        assert first.sim.trace == second.sim.trace
        assert first.sim.landed == second.sim.landed
