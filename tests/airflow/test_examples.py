"""Examples of the README on the whole stack: published rows remain exact if the publishing task is killed.

`make test-long` runs the cheapest one and the one that has the most parts, `make example NAME=all` all of them. In
`make test`, tests/airflow/user_actions publishes a file on a real scheduler, and replaces it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ENDS_S = 1800
ROUNDS = 2


@pytest.mark.long
@pytest.mark.timeout(ENDS_S + 60)
@pytest.mark.parametrize(
    "name",
    [
        "files",  # one file per day, written in two phases
        "billing",  # state, a receiver of calls, corrections
    ],
)
def test_published_rows_on_a_real_scheduler_are_exact_also_under_kill_9_in_mid_publish(
    tmp_path: Path, name: str
) -> None:
    """The code that checks an example imports nothing of tallystick."""
    command = [sys.executable, "-m", "examples.runner", name]
    completed = subprocess.run(
        [*command, "--state", str(tmp_path / "state")],
        capture_output=True,
        text=True,
        check=False,
        timeout=ENDS_S,
    )
    output = completed.stdout + completed.stderr
    assert completed.returncode == 0, output
    assert completed.stdout.splitlines()[-1] == "PASS", output
    rounds = [line for line in completed.stdout.splitlines() if line.startswith(f"  {name} ")]
    assert len(rounds) == ROUNDS, output
    assert "kill -9" in rounds[1], output
