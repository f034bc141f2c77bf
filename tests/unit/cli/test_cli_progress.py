"""The progress that a command shows on a terminal; a program gets none of it."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tallystick
from tallystick_devstack.process import wait_until

# The commands themselves, over reads that wait for a line on standard input.
PROGRAM = """
import sys
from types import SimpleNamespace
from tallystick.cli import app, by_name, json_output, status_text, table_files, text
from tallystick.operations import preview, status, verify

def slow(*_, watch=None, **__):
    if watch is not None:
        watch("objects", 1, 2)
    sys.stdin.readline()
    return SimpleNamespace(proven=True, checks=(), tables=(), read_to={})

status.read_status = status.read_log = status.read_tables = verify.verify = preview.preview = slow
table_files.read_files = slow
table_files.as_text, table_files.as_json = lambda _: "", lambda *_: {}
by_name.catalog_names = lambda *_: None
status_text.status = lambda *_, **__: ""
status.problems = lambda *_, **__: {}
for module in (json_output, text):
    for name in ("status", "log", "tables", "proof", "preview"):
        setattr(module, name, lambda *_, **__: {} if module is json_output else "")
app.app(sys.argv[1:], prog_name="tally")
"""
LAKE = "memory://watched"
DAY = ["--from", "2013-01-01", "--to", "2013-01-02"]


class Watched:
    """`tally` as a process, with a terminal or a pipe as standard error."""

    def __init__(self, *argv: str, terminal: bool) -> None:
        self._ours, theirs = pty.openpty() if terminal else os.pipe()
        self.printed = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            env={
                **os.environ,
                "PYTHONPATH": str(Path(tallystick.__file__).parents[1]),
                "TERM": "xterm",
            },
        )
        os.close(theirs)

    def shows(self, words: str) -> bool:
        self._read()
        return words in self.printed or self.process.poll() is not None

    def ends(self) -> int:
        self.process.communicate(b"\n", timeout=60)
        self._read()
        os.close(self._ours)
        return self.process.returncode

    def _read(self) -> None:
        while select.select([self._ours], [], [], 0.01)[0]:
            try:
                part = os.read(self._ours, 4096)
            except OSError:  # the end of a terminal
                return
            if not part:
                return
            self.printed += part.decode()


@pytest.fixture
def started() -> Iterator[list[Watched]]:
    running: list[Watched] = []
    yield running
    for watched in running:
        watched.process.kill()
        watched.process.wait()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["status", LAKE], "reading the ledger"),
        (["log", LAKE], "requests to the store"),
        (["log", LAKE], "reading the commits"),
        (["tables", LAKE], "reading the tables' metadata"),
        (["tables", LAKE, "--files"], "objects"),
        (["verify", LAKE], "objects"),
        (["plan", LAKE, *DAY], "reading the ledger"),
        (["sql", "select 1", LAKE], "reading the tables' metadata"),
    ],
)
def test_on_a_terminal_a_slow_command_shows_what_it_does(
    started: list[Watched], argv: list[str], words: str
) -> None:
    tally = Watched(*argv, terminal=True)
    started.append(tally)
    wait_until(lambda: tally.shows(words), deadline_s=60, what=f"{words!r} on the terminal")
    assert words in tally.printed
    assert tally.ends() == 0


@pytest.mark.parametrize(
    "argv",
    [
        *([command, LAKE] for command in ("status", "log", "tables", "verify")),
        ["tables", LAKE, "--files"],
        ["plan", LAKE, *DAY],
        ["sql", "select 1", LAKE],
    ],
    ids=lambda argv: argv[0],
)
@pytest.mark.parametrize(("terminal", "options"), [(True, ["--json"]), (False, [])])
def test_with_json_or_without_a_terminal_no_progress_is_shown(
    started: list[Watched], argv: list[str], terminal: bool, options: list[str]
) -> None:
    tally = Watched(*argv, *options, terminal=terminal)
    started.append(tally)
    assert tally.ends() == 0
    assert tally.printed == ""
