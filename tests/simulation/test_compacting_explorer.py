"""The promise under random schedules with compactions, and the guards that compaction needs.

The explorer's schedules have compactions among their actors; `test_explorer.py` runs 1,250 of them. Here each guard of
compaction is removed, and must be detected.
"""

from __future__ import annotations

import os

import pytest

from simulation.compacting_mutants import MUTANTS, Mutant
from simulation.explorer import explore

# A slow machine with concurrent tests takes ten times as long as an idle one.
pytestmark = pytest.mark.timeout(1800)
SEED = int(os.environ.get("TALLYSTICK_SEED", "1"))
SCHEDULES = 1_500
# A seed that detects a mutant which few schedules detect: it is tried before all others, because it is cheaper.
DETECTED_AT = {
    "a published compaction is not recognised": 566,
    "a replacement ignores compactions": 22,
    "a replacement keeps moved rows": 22,
    "a shared file is dropped with its first run": 22,
    "deletes replace those before": 45,
    "gc forgets granted compactions": 27,
    "gc forgets the records of compactions": 117,
    "no grant is needed": 178,
    "numbers of rows are taken for positions": 10,
    "rows of a replaced plan are moved": 178,
    "rows that another compaction has are moved": 117,
}


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_dropped_guard_of_compaction_is_detected(name: str) -> None:
    mutant: Mutant = MUTANTS[name]
    with mutant():
        findings = explore(DETECTED_AT[name], 1) if name in DETECTED_AT else None
        if findings is None or not findings.violations:
            findings = explore(SEED, SCHEDULES)
    assert findings.violations, f"{findings.schedules} schedules did not detect {name!r}"


def test_schedules_publish_compactions_and_replace_rows_that_were_moved() -> None:
    """The first schedules of test_explorer.py, which runs many more, are about compactions, too."""
    findings = explore(SEED, 100)
    assert not findings.violations
    assert findings.compactions > 50
    # Roots after which a reader skips deleted positions.
    assert findings.deletes > 10
