"""The promise under random schedules of the real plan, commit and swap code, and the guards that it needs.

`make test` runs 1,250 schedules, within which each dropped guard must be detected. `make test-long` runs 18,750 others,
`make explore` any number.
"""

from __future__ import annotations

import os

import pytest

from simulation.explorer import Schedule, explore
from simulation.mutants import MUTANTS, Mutant

# A slow machine with concurrent tests takes ten times as long as an idle one.
pytestmark = pytest.mark.timeout(1800)
SEED = int(os.environ.get("TALLYSTICK_SEED", "1"))
RANGES, PER_RANGE = 16, 1_250
LONG_FROM = 1  # the ranges from here on are left to `make test-long`
# Mutants that few schedules detect, with a seed that does: it is tried before all others, because it is cheaper.
DETECTED_AT = {
    "a lower clear number succeeds": 59,
    "boundaries are not clamped": 141,
    "decided by generation, not by plan": 1_149,
    "gc marks before its swap": 242,
    "gc without its swap": 32,
    "gc without reader grace": 426,
}


@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=[pytest.mark.long] if n >= LONG_FROM else []) for n in range(RANGES)],
)
def test_no_schedule_breaks_the_promise(number: int) -> None:
    findings = explore(SEED + number * PER_RANGE, PER_RANGE)
    replays = "".join(
        f"\nseed {seed}: {broken}\nreplay: python tests/simulation/explore.py --show {seed}"
        for seed, broken in findings.violations
    )
    assert not findings.violations, replays
    assert findings.schedules == PER_RANGE
    # An explorer without commits would prove nothing.
    assert findings.commits > findings.schedules
    # Nor would it prove anything about reports of other runs' attempts if none was used.
    assert findings.reports_used > 5


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_dropped_guard_is_detected(name: str) -> None:
    mutant: Mutant = MUTANTS[name]
    with mutant():
        findings = explore(DETECTED_AT[name], 1) if name in DETECTED_AT else None
        if findings is None or not findings.violations:
            findings = explore(SEED, LONG_FROM * PER_RANGE)
    assert findings.violations, f"{findings.schedules} schedules did not detect {name!r}"


def test_make_test_runs_the_schedules_that_detect_the_rarest_mutants() -> None:
    assert all(1 <= seed <= LONG_FROM * PER_RANGE for seed in DETECTED_AT.values())


def test_the_same_seed_gives_the_same_schedule() -> None:
    for seed in range(SEED, SEED + 20):
        first, second = Schedule(seed), Schedule(seed)
        assert first.run() == second.run()
        assert first.sim.trace == second.sim.trace
        assert first.sim.landed == second.sim.landed
