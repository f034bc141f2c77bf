"""The demo's output fits 100 columns, and its commands can be typed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from examples.demo.__main__ import tally_command
from examples.demo.console import WIDTH, Console, Step, steps_table


def test_a_long_line_is_wrapped_under_its_clock(capsys: pytest.CaptureFixture[str]) -> None:
    Console().log("word " * 60)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 1
    assert all(len(line) <= WIDTH for line in lines)
    assert lines[0].startswith("   0.0 s  word")
    assert lines[1].startswith(" " * 10 + "word")


def test_the_table_of_steps_fits_and_marks_failed_steps() -> None:
    steps = [
        Step(action="schedule", done="it is on " * 9, result="all is well", elapsed_s=61.4),
        Step(
            action="kill driver", done="kill", result="rows showed " * 9, elapsed_s=2, passed=False
        ),
    ]
    lines = list(steps_table(steps))
    assert all(len(line) <= WIDTH for line in lines)
    assert lines[2].startswith("  schedule      it is on it is on")
    assert lines[2].rstrip().endswith("61")
    assert "all is well" in lines[2]
    assert sum("BAD: rows showed" in line for line in lines) == 1


def test_the_demo_prints_a_tally_command_that_can_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv" / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    here = (tmp_path / ".tally").resolve()
    assert tally_command(here) == ".venv/bin/tally"
    assert tally_command(tmp_path / "o ther") == (
        f"TALLYSTICK_STATE_DIR='{tmp_path}/o ther' .venv/bin/tally"
    )
    (tmp_path / "tally").touch(mode=0o700)
    assert tally_command(here) == "tally"
