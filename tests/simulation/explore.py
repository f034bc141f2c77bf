"""Run the explorer by hand: python tests/simulation/explore.py --schedules 200000 --seed 1 [--show SEED]."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from simulation.explorer import Schedule, explore


def main() -> int:
    """Explore and print the result. Return 1 if the promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, help="print the steps of one seed instead")
    options = parser.parse_args()
    if options.show is not None:
        schedule = Schedule(options.show)
        broken = schedule.run()
        print("\n".join(schedule.sim.trace))
        print(broken or "the promise held")
        return 1 if broken else 0
    began = time.monotonic()
    findings = explore(options.seed, options.schedules, stop_after=10)
    print(
        f"{findings.schedules} schedules, {findings.steps} steps, {findings.commits} commits, "
        f"{len(findings.violations)} violations, {time.monotonic() - began:.0f} s"
    )
    for seed, broken in findings.violations:
        print(
            f"  seed {seed}: {broken}\n    replay: python tests/simulation/explore.py --show {seed}"
        )
    return 1 if findings.violations else 0


if __name__ == "__main__":
    sys.exit(main())
