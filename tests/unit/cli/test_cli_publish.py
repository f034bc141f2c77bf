"""`tally publish`, and outputs in `tally status`."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from support.small_lake import SmallLake, days, pipeline
from tallystick.outputs.files import FileOutput
from tallystick.pipeline import Pipeline
from unit.cli.invoke import LAKE, tally, tally_json, too_wide

FILE = """
from dataclasses import replace
from support.small_lake import pipeline
from tallystick.outputs.files import FileOutput

pipeline = replace(
    pipeline({lake!r}),
    outputs=[FileOutput(name="feed", table="events", folder={folder!r})],
)
"""


def declared(folder: Path, warehouse: str) -> Pipeline:
    """Return the pipeline as the file declares it."""
    output = FileOutput(name="feed", table="events", folder=str(folder))
    return replace(pipeline(warehouse), outputs=[output])


@pytest.fixture
def folder(lake: SmallLake, tmp_path: Path) -> Path:
    """Return the folder of an output that lacks days 7 and 8; the file that declares it is next to it."""
    path = tmp_path / "out"
    (tmp_path / "small.py").write_text(FILE.format(lake=LAKE, folder=str(path)))
    lake.declared = functools.partial(declared, path)
    lake.log.append("events", 0, days(7, 8).start, n=1, kind="a")
    lake.log.append("events", 0, days(8, 9).start, n=2, kind="b")
    lake.run(days(7, 8))
    lake.run(days(8, 9))
    return path


def test_status_shows_what_is_pending_and_the_command_that_publishes_it(folder: Path) -> None:
    output = tally("status", LAKE).stdout
    assert (
        "PENDING: 2 intervals to publish:\n  feed: 2013-01-07 to 2013-01-08, generation 1" in output
    )
    assert f"tally publish {LAKE} --pipeline FILE" in output
    assert too_wide(output) == []
    assert tally_json("status", LAKE)["pending"][0] == {
        "from": "2013-01-07T00:00:00.000Z",
        "to": "2013-01-08T00:00:00.000Z",
        "output": "feed",
        "generation": 1,
        "in_progress": False,
    }


def test_publish_sends_what_is_pending_and_a_repeat_finds_nothing(folder: Path) -> None:
    file = str(folder.parent / "small.py")
    result = tally("publish", LAKE, "--pipeline", file)
    assert result.exit_code == 0, result.stderr
    assert (
        "2 intervals published:\n  2013-01-07 to 2013-01-08 to feed: 1 row, generation 1"
        in result.stdout
    )
    assert too_wide(result.stdout) == []
    assert len(list(folder.glob("*.jsonl"))) == 2
    assert "Nothing is pending." in tally("publish", LAKE, "--pipeline", file).stdout
    assert "PENDING" not in tally("status", LAKE).stdout


def test_publish_as_json(folder: Path) -> None:
    answer = tally_json(
        "publish", LAKE, "--pipeline", str(folder.parent / "small.py"), "--output", "feed"
    )
    assert [
        (published["output"], published["rows"], published["resumed"])
        for published in answer["published"]
    ] == [("feed", 1, False)] * 2
    assert answer["failed"] == []


def test_a_failed_output_is_reported_and_sets_the_exit_code(folder: Path) -> None:
    folder.write_text("a file where the folder belongs")
    file = str(folder.parent / "small.py")
    result = tally("publish", LAKE, "--pipeline", file)
    assert result.exit_code == 77
    assert "NOT PUBLISHED: feed: settings: output feed: " in " ".join(result.stdout.split())
    as_json = tally("publish", LAKE, "--pipeline", file, "--json")
    assert json.loads(as_json.stdout)["failed"][0]["kind"] == "settings"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is not a Python file"),
        ("1/0", "cannot be loaded: ZeroDivisionError"),
        ("x = 1", "declares no pipeline named 'small'"),
    ],
)
def test_a_file_that_declares_nothing_is_named(
    folder: Path, tmp_path: Path, content: str | None, message: str
) -> None:
    file = tmp_path / "other.py"
    if content is not None:
        file.write_text(content)
    result = tally("publish", LAKE, "--pipeline", str(file))
    assert result.exit_code == 77
    assert message in " ".join(result.stderr.split())


def test_an_output_that_is_not_declared_is_named(folder: Path) -> None:
    result = tally(
        "publish", LAKE, "--pipeline", str(folder.parent / "small.py"), "--output", "mail"
    )
    assert result.exit_code == 77
    assert "declares no output 'mail'" in " ".join(result.stderr.split())
