"""A server never outlives the process that started it, and the reason of its death is reported."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tallystick.errors import SettingsError
from tallystick_devstack import process
from tallystick_devstack.process import (
    ChildProcess,
    base_environment,
    free_port,
    port_is_free,
    run_to_end,
    wait_for_port,
    wait_until,
)

# Every way in which a process can leave its server: a background child, a session of its own, an orphan's orphan.
ESCAPES = (
    "setsid sleep {mark} & (setsid sh -c 'setsid sleep {mark} & sleep {mark}' &) ; "
    "(nohup sleep {mark} &) ; sleep {mark}"
)
PROCESSES = 5


@pytest.fixture
def mark() -> Iterator[str]:
    """Yield a unique length of sleep, by which our processes are found; kill them after the test."""
    length = f"3600.{uuid.uuid4().int % 10**12:012d}"
    yield length
    for pid in running(length):
        os.kill(pid, signal.SIGKILL)


def running(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"sleep") and mark.encode() in words:
            found.append(int(entry.name))
    return found


def soon(check: Callable[[], bool], what: str) -> None:
    wait_until(check, deadline_s=20, what=what)


def started(mark: str, log_path: Path, script: str = ESCAPES) -> ChildProcess:
    child = ChildProcess(["sh", "-c", script.format(mark=mark)], name="server", log_path=log_path)
    soon(lambda: len(running(mark)) == (PROCESSES if script is ESCAPES else 1), "all processes run")
    return child


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_death_of_the_starter_ends_the_whole_tree(
    tmp_path: Path, mark: str, number: signal.Signals
) -> None:
    starter = (
        "import sys, time; from pathlib import Path; from tallystick_devstack.process import ChildProcess\n"
        "child = ChildProcess(['sh', '-c', sys.argv[1]], name='server', log_path=Path(sys.argv[2]))\n"
        "time.sleep(3600)"
    )
    words = [sys.executable, "-c", starter, ESCAPES.format(mark=mark), str(tmp_path / "log")]
    with subprocess.Popen(words) as process:
        soon(lambda: len(running(mark)) == PROCESSES, "all processes run")
        process.send_signal(number)
    soon(lambda: not running(mark), "all processes are gone")


def test_stop_ends_the_whole_tree_and_may_be_repeated(tmp_path: Path, mark: str) -> None:
    child = started(mark, tmp_path / "log")
    child.stop(grace_s=5)
    assert not running(mark)
    assert not child.alive
    child.stop()
    child.kill()
    assert child.exit_code == 128 + signal.SIGTERM


def test_a_server_that_ignores_the_request_is_killed(tmp_path: Path, mark: str) -> None:
    child = started(
        mark, tmp_path / "log", "trap '' TERM; echo ready; while :; do sleep {mark}; done"
    )
    soon(lambda: "ready" in child.tail(), "the trap is set")
    child.stop(grace_s=0.2)
    assert not running(mark)
    assert child.exit_code == 128 + signal.SIGKILL


def test_what_a_server_started_ends_with_it(tmp_path: Path, mark: str) -> None:
    child = ChildProcess(
        ["sh", "-c", f"(setsid sleep {mark} &); echo done; exit 3"],
        name="server",
        log_path=tmp_path / "log",
    )
    soon(lambda: not child.alive, "the server ends")
    assert child.exit_code == 3
    assert not running(mark)


def test_the_server_of_a_killed_warden_ends(tmp_path: Path, mark: str) -> None:
    child = started(mark, tmp_path / "log", "exec sleep {mark}")
    os.kill(child.pid, signal.SIGKILL)
    soon(lambda: not running(mark), "the server is gone")
    soon(lambda: not child.alive, "the warden is collected")


def test_a_stop_signal_of_its_own_reaches_the_server(tmp_path: Path) -> None:
    script = "trap 'echo interrupted; exit 7' INT; echo ready; while :; do sleep 0.05; done"
    child = ChildProcess(
        ["sh", "-c", script], name="server", log_path=tmp_path / "log", stop_signal=signal.SIGINT
    )
    soon(lambda: "ready" in child.tail(), "the trap is set")
    child.stop(grace_s=10)
    assert child.exit_code == 7
    assert child.tail().endswith("interrupted")


def test_a_server_that_dies_early_reports_its_own_last_lines(tmp_path: Path) -> None:
    log_path = tmp_path / "log"
    log_path.write_text("line of a previous server\n")
    child = ChildProcess(
        ["sh", "-c", "echo no such setting >&2; exit 2"], name="server", log_path=log_path
    )
    with pytest.raises(SettingsError) as caught:
        wait_until(lambda: False, deadline_s=60, what="its answer", process=child)
    assert "server ended before its answer" in str(caught.value)
    assert "no such setting" in str(caught.value)
    assert "previous server" not in str(caught.value)
    assert str(log_path) in caught.value.hint


def test_a_process_that_ends_right_after_a_check_is_checked_again(
    tmp_path: Path, mark: str
) -> None:
    """A migration that succeeded between two checks was reported as failed."""
    with ChildProcess(["sleep", mark], name="step", log_path=tmp_path / "log") as child:

        def has_ended() -> bool:
            ended = not child.alive
            child.kill()  # after the check
            return ended

        wait_until(has_ended, deadline_s=20, what="the end of step", process=child)
        assert not child.alive


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot start nonesuch"):
        run_to_end(["nonesuch"], name="nonesuch", log_path=tmp_path / "log", deadline_s=20)


def test_a_program_that_fails_reports_its_exit_code(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="exit code 5"):
        run_to_end(["sh", "-c", "exit 5"], name="step", log_path=tmp_path / "log", deadline_s=20)


def test_a_program_that_takes_too_long_is_stopped(tmp_path: Path, mark: str) -> None:
    with pytest.raises(SettingsError, match=r"the end of step did not happen within 0\.3 s"):
        run_to_end(["sleep", mark], name="step", log_path=tmp_path / "log", deadline_s=0.3)
    assert not running(mark)


def test_waiting_ends_at_its_deadline_while_the_server_lives(tmp_path: Path, mark: str) -> None:
    with ChildProcess(["sleep", mark], name="server", log_path=tmp_path / "log") as child:
        with pytest.raises(SettingsError, match="it wrote nothing"):
            wait_until(lambda: False, deadline_s=0.1, what="its answer", process=child)
        assert child.alive
    assert not running(mark)


def test_a_program_gets_only_the_given_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not for servers")
    log_path = tmp_path / "log"
    run_to_end(
        ["env"],
        name="env",
        log_path=log_path,
        deadline_s=20,
        env=base_environment() | {"MINE": "1"},
    )
    text = log_path.read_text()
    assert "MINE=1" in text
    assert "AWS_" not in text


def test_a_port_is_free_until_a_server_listens_there(tmp_path: Path) -> None:
    port = free_port()
    assert port_is_free(port)
    script = (
        f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); time.sleep(3600)"
    )
    with ChildProcess(
        [sys.executable, "-c", script], name="server", log_path=tmp_path / "log"
    ) as child:
        wait_until(lambda: not port_is_free(port), deadline_s=20, what="a listener", process=child)
    assert port_is_free(port)


def test_a_server_waits_until_the_one_before_it_has_left_its_port() -> None:
    held = socket.create_server(("127.0.0.1", 0))
    port = held.getsockname()[1]
    timer = threading.Timer(0.3, held.close)
    timer.start()
    wait_for_port(port, "the server")
    timer.join()
    assert port_is_free(port)


def test_a_port_that_stays_in_use_is_an_error_with_its_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "_PORT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        with pytest.raises(SettingsError, match=f"port {port} .* set for the server, is in use"):
            wait_for_port(port, "the server")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_another_user_gets_through_folders_that_are_closed_to_it(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "file").write_text("inside")
    log_path = tmp_path / "log"
    run_to_end(
        ["sh", "-c", 'id -un; test -r "$0" && cat "$0"', str(closed / "file")],
        name="look",
        log_path=log_path,
        deadline_s=20,
        user="daemon",
    )
    assert log_path.read_text() == "daemon\ninside"


def test_a_warden_whose_starter_is_gone_starts_nothing(tmp_path: Path, mark: str) -> None:
    """The starter may die while its warden is being started: process 1 is not the warden's parent."""
    from tallystick_devstack import process

    warden = Path(process.__file__).with_name("warden.py")
    ended = subprocess.run(
        [sys.executable, "-I", "-S", warden, "--starter", "1", "--", "sleep", mark], check=False
    )
    assert ended.returncode == 128 + signal.SIGKILL
    assert not running(mark)
