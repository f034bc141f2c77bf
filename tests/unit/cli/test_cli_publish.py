"""`tally publish` and what `tally status` says of outputs."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from support.small_lake import SmallLake, days, pipeline
from tallystick.outputs.files import FileOutput
from tallystick.pipeline import Pipeline
from unit.cli.asking import LAKE, ask, tally, too_wide

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
    """The pipeline as the file declares it."""
    output = FileOutput(name="feed", table="events", folder=str(folder))
    return replace(pipeline(warehouse), outputs=[output])


@pytest.fixture
def folder(lake: SmallLake, tmp_path: Path) -> Path:
    """The folder of an output that lacks days 7 and 8; its file lies beside it."""
    path = tmp_path / "out"
    (tmp_path / "small.py").write_text(FILE.format(lake=LAKE, folder=str(path)))
    lake.declared = functools.partial(declared, path)
    lake.log.append("events", 0, days(7, 8).start, n=1, kind="a")
    lake.log.append("events", 0, days(8, 9).start, n=2, kind="b")
    lake.run(days(7, 8))
    lake.run(days(8, 9))
    return path


def test_status_says_what_is_pending_and_the_command_that_brings_it(folder: Path) -> None:
    told = tally("status", LAKE).stdout
    assert (
        "PENDING: 2 intervals that outputs lack:\n  feed: 2013-01-07 to 2013-01-08, generation 1"
        in told
    )
    assert f"tally publish {LAKE} --pipeline FILE" in told
    assert too_wide(told) == []
    assert ask("status", LAKE)["pending"][0] == {
        "from": "2013-01-07T00:00:00.000Z",
        "to": "2013-01-08T00:00:00.000Z",
        "output": "feed",
        "generation": 1,
        "in_progress": False,
    }


def test_publish_brings_it_and_a_repeat_finds_nothing(folder: Path) -> None:
    file = str(folder.parent / "small.py")
    told = tally("publish", LAKE, "--pipeline", file)
    assert told.exit_code == 0, told.stderr
    assert (
        "2 intervals published:\n  2013-01-07 to 2013-01-08 to feed: 1 row, generation 1"
        in told.stdout
    )
    assert too_wide(told.stdout) == []
    assert len(list(folder.glob("*.jsonl"))) == 2
    assert "Outputs lack nothing." in tally("publish", LAKE, "--pipeline", file).stdout
    assert "PENDING" not in tally("status", LAKE).stdout


def test_publish_as_json(folder: Path) -> None:
    form = ask("publish", LAKE, "--pipeline", str(folder.parent / "small.py"), "--output", "feed")
    assert [(one["output"], one["rows"], one["resumed"]) for one in form["published"]] == [
        ("feed", 1, False)
    ] * 2
    assert form["failed"] == []


def test_what_cannot_be_published_is_told_and_is_the_exit_code(folder: Path) -> None:
    folder.write_text("a file where the folder belongs")
    file = str(folder.parent / "small.py")
    told = tally("publish", LAKE, "--pipeline", file)
    assert told.exit_code == 77
    assert "NOT PUBLISHED: feed: settings: output feed: " in " ".join(told.stdout.split())
    form = tally("publish", LAKE, "--pipeline", file, "--json")
    assert json.loads(form.stdout)["failed"][0]["kind"] == "settings"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "is no Python file"),
        ("1/0", "cannot be loaded: ZeroDivisionError"),
        ("x = 1", "declares no pipeline named 'small'"),
    ],
)
def test_a_file_that_declares_nothing_is_named(
    folder: Path, tmp_path: Path, content: str | None, said: str
) -> None:
    file = tmp_path / "other.py"
    if content is not None:
        file.write_text(content)
    told = tally("publish", LAKE, "--pipeline", str(file))
    assert told.exit_code == 77
    assert said in " ".join(told.stderr.split())


def test_an_output_that_is_not_declared_is_named(folder: Path) -> None:
    told = tally("publish", LAKE, "--pipeline", str(folder.parent / "small.py"), "--output", "mail")
    assert told.exit_code == 77
    assert "declares no output 'mail'" in " ".join(told.stderr.split())
