"""Logs of servers that run for weeks remain small, while the servers continue to write to them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tallystick_devstack.process import ChildProcess, wait_until
from tallystick_devstack.rotation import rotate

LINES = """
import sys
for line in sys.stdin or ():
    pass
import itertools, time
for number in itertools.count():
    print(number, "x" * 100, flush=True)
    time.sleep(0.001)
"""


def test_a_long_log_is_copied_and_emptied_and_a_short_one_left_alone(tmp_path: Path) -> None:
    long, short, gone = tmp_path / "long.log", tmp_path / "short.log", tmp_path / "gone.log"
    long.write_text("x" * 101)
    short.write_text("y" * 100)
    rotate([long, short, gone], max_bytes=100)
    assert (long.read_text(), short.read_text()) == ("", "y" * 100)
    assert {path.name for path in tmp_path.iterdir()} == {"long.log", "long.log.1", "short.log"}
    assert (tmp_path / "long.log.1").read_text() == "x" * 101
    long.write_text("z" * 101)
    rotate([long, short, gone], max_bytes=100)
    assert (tmp_path / "long.log.1").read_text() == "z" * 101


def test_a_log_that_cannot_be_copied_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    log = tmp_path / "a.log"
    log.write_text("x" * 101)
    monkeypatch.setattr("shutil.copyfile", full)
    rotate([log], max_bytes=100)
    assert log.read_text() == "x" * 101


def test_a_running_server_continues_at_the_start_and_its_last_lines_are_read(
    tmp_path: Path,
) -> None:
    log = tmp_path / "server.log"
    log.write_text("of a previous server\n" * 500)
    with ChildProcess([sys.executable, "-c", LINES], name="a server", log_path=log) as server:
        wait_until(lambda: log.stat().st_size > 50_000, deadline_s=60, what="50 kB", process=server)
        rotate([log], max_bytes=40_000)
        assert (tmp_path / "server.log.1").stat().st_size > 40_000
        wait_until(lambda: log.stat().st_size > 0, deadline_s=60, what="a line", process=server)
        assert "x" * 100 in server.tail()
        # Without O_APPEND it would continue at its old position, after a gap of zeros.
        assert b"\0" not in log.read_bytes()


@pytest.mark.parametrize("written", [0, 1, 99, 100, 101, 10_000])
def test_the_last_lines_are_read_however_long_the_log_has_become_since_its_rotation(
    tmp_path: Path, written: int
) -> None:
    log = tmp_path / "server.log"
    log.write_text("x" * 99 + "\n")
    with ChildProcess([sys.executable, "-c", "pass"], name="a server", log_path=log) as server:
        wait_until(lambda: not server.alive, deadline_s=60, what="its end")
        rotate([log], max_bytes=50)
        log.write_text("y" * written)
        assert server.tail() == "y" * written
