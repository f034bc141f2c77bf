"""An example of the README on the whole stack: what is published stays right where its task dies in the middle of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ENDS_S = 1800
ROUNDS = 2


@pytest.mark.timeout(ENDS_S + 60)
def test_what_is_published_on_a_real_scheduler_is_right_also_under_kill_9_in_mid_publish(
    tmp_path: Path,
) -> None:
    """Billing: state, a receiver of calls, corrections. It is judged by code that imports nothing of tallystick's."""
    command = [sys.executable, "-m", "examples.runner", "billing"]
    done = subprocess.run(
        [*command, "--state", str(tmp_path / "state")],
        capture_output=True,
        text=True,
        check=False,
        timeout=ENDS_S,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert done.stdout.splitlines()[-1] == "PASS", said
    rounds = [line for line in done.stdout.splitlines() if line.startswith("  billing ")]
    assert len(rounds) == ROUNDS, said
    assert "kill -9" in rounds[1], said
