"""What the demo tells fits 100 columns, and can be typed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from examples.demo.__main__ import tally_words
from examples.demo.story import WIDTH, Deed, Story, deeds_table


def test_a_long_line_is_wrapped_under_its_clock(capsys: pytest.CaptureFixture[str]) -> None:
    Story().say("word " * 60)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 1
    assert all(len(line) <= WIDTH for line in lines)
    assert lines[0].startswith("   0.0 s  word")
    assert lines[1].startswith(" " * 10 + "word")


def test_the_table_of_deeds_fits_and_says_what_was_bad() -> None:
    deeds = [
        Deed(door="schedule", done="it is on " * 9, message="all is well", elapsed_s=61.4),
        Deed(door="kill driver", done="kill", message="rows showed " * 9, elapsed_s=2, held=False),
    ]
    lines = list(deeds_table(deeds))
    assert all(len(line) <= WIDTH for line in lines)
    assert lines[2].startswith("  schedule      it is on it is on")
    assert lines[2].rstrip().endswith("61")
    assert "all is well" in lines[2]
    assert sum("BAD: rows showed" in line for line in lines) == 1


def test_the_demo_tells_a_tally_that_can_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv" / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    here = (tmp_path / ".tally").resolve()
    assert tally_words(here) == ".venv/bin/tally"
    assert tally_words(tmp_path / "o ther") == (
        f"TALLYSTICK_STATE_DIR='{tmp_path}/o ther' .venv/bin/tally"
    )
    (tmp_path / "tally").touch(mode=0o700)
    assert tally_words(here) == "tally"
