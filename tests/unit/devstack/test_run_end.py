"""A test run that is ended by any signal, in any of its processes, leaves no process running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from support import run_end
from tallystick_devstack.process import started_at, wait_until
from tallystick_devstack.stack import down, process_runs, status

TESTS = Path(__file__).parents[2]
GONE_S = 60
# A test like those of the suite: it starts a stack with its own supervisor, and a driver in its own session.
LEFT = """
import json, subprocess, time
from pathlib import Path
from tallystick_devstack.stack import up

HERE = Path(__file__).parent

def test_that_is_ended():
    driver = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    info = up(HERE / "state", project_dir=HERE, parts={"s3"}, report=lambda _: None)
    pids = [driver.pid, info.supervisor_pid, *info.parts["s3"].pids]
    (HERE / "pids.new").write_text(json.dumps(pids))
    (HERE / "pids.new").rename(HERE / "pids")
    time.sleep(3600)
"""

CONFTEST = f"""
import importlib.util
spec = importlib.util.spec_from_file_location("suite_conftest", {str(TESTS / "conftest.py")!r})
suite = importlib.util.module_from_spec(spec)
spec.loader.exec_module(suite)
pytest_configure = suite.pytest_configure
"""


# A program that a shell starts in the background ignores Ctrl-C, one under nohup the end of its terminal, and so do the
# processes that they start.
INTERRUPTIBLE = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def start(folder: Path, *words: str, **environ: str) -> subprocess.Popen[bytes]:
    """Start a small run of pytest through the program `words`; its conftest.py uses pytest_configure of this suite."""
    (folder / "test_left.py").write_text(LEFT)
    (folder / "conftest.py").write_text(CONFTEST)
    pytest_words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    project = TESTS.parent
    path = os.pathsep.join(map(str, [project / "plugins", project / "devstack", TESTS]))
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            INTERRUPTIBLE,
            *words,
            *pytest_words,
            f"--rootdir={folder}",
            "-c",
            os.devnull,
            str(folder),
        ],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path} | environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def started(folder: Path, run: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return all processes of the small run, once its test sleeps."""
    wait_until(
        lambda: (folder / "pids").exists() or run.poll() is not None,
        deadline_s=120,
        what="the stack of the small run",
    )
    assert run.poll() is None
    found = [psutil.Process(pid) for pid in json.loads((folder / "pids").read_text())]
    return [
        psutil.Process(run.pid),
        *psutil.Process(run.pid).children(recursive=True),
        *found,
        *(child for process in found for child in process.children(recursive=True)),
    ]


def lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def wait_until_gone(processes: list[psutil.Process]) -> None:
    wait_until(
        lambda: not any(map(lives, processes)), deadline_s=GONE_S, what="the end of everything"
    )


@pytest.fixture
def cleaned() -> Iterator[list[psutil.Process]]:
    """Kill the listed processes after the test, because a failing test may leave them running."""
    running: list[psutil.Process] = []
    yield running
    for process in running:
        with suppress(psutil.NoSuchProcess):
            process.kill()


@pytest.mark.parametrize(
    ("number", "workers"),
    [
        (signal.SIGTERM, "1"),
        (signal.SIGINT, "0"),
        (signal.SIGHUP, "0"),
        (signal.SIGKILL, "1"),
        (signal.SIGKILL, "0"),
    ],
)
def test_nothing_runs_after_a_test_run_was_ended(
    tmp_path: Path, cleaned: list[psutil.Process], number: signal.Signals, workers: str
) -> None:
    with start(tmp_path, PYTEST_ADDOPTS=f"-n{workers}") as run:
        cleaned += started(tmp_path, run)
        run.send_signal(number)
        wait_until_gone(cleaned)


def test_nothing_runs_after_the_make_that_started_a_test_run_was_killed(
    tmp_path: Path, cleaned: list[psutil.Process]
) -> None:
    make = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    environ = {run_end.ENDS_WITH_PARENT: "1", "PYTEST_ADDOPTS": "-n0"}
    with start(tmp_path, sys.executable, "-c", make, **environ) as run:
        cleaned += started(tmp_path, run)
        run.kill()
        wait_until_gone(cleaned)


def test_make_test_ends_with_make() -> None:
    assert f"{run_end.ENDS_WITH_PARENT}=1 $(RUN)/python -m pytest" in (
        TESTS.parent / "Makefile"
    ).read_text(encoding="utf-8")


BOUND = """
import sys, time
from pathlib import Path
from tallystick_devstack.stack import release, up
up(Path(sys.argv[1]), project_dir=Path(sys.argv[1]), parts={"s3"}, bound=True, report=lambda _: None)
if sys.argv[2] == "released":
    release(Path(sys.argv[1]))
print("up", flush=True)
time.sleep(3600)
"""


def restarts(state_dir: Path) -> int:
    info = status(state_dir)
    assert info is not None
    return info.parts["s3"].restarts if info.running else 0


@pytest.mark.parametrize("how", ["bound", "released"])
def test_a_stack_ends_with_the_process_that_it_is_bound_to(tmp_path: Path, how: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BOUND, str(tmp_path), how], stdout=subprocess.PIPE
    ) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"up\n"
        info = status(tmp_path)
        assert info is not None
        starter.kill()
    if how == "bound":
        wait_until(lambda: not process_runs(info.supervisor_pid), deadline_s=GONE_S, what="the end")
        stopped = status(tmp_path)
        assert stopped is not None
        assert stopped.state == "stopped"
    else:
        # A new server needs more time than the supervisor needs to notice that the starter is gone.
        os.kill(info.parts["s3"].pids[0], signal.SIGKILL)
        wait_until(lambda: restarts(tmp_path) == 1, deadline_s=GONE_S, what="a new S3 server")
        assert down(tmp_path)


def test_a_process_is_known_by_its_number_and_its_start() -> None:
    with subprocess.Popen(["sleep", "3600"]) as process:
        first = started_at(process.pid)
        assert first is not None
        assert first == started_at(process.pid)
        process.kill()
        wait_until(lambda: started_at(process.pid) is None, deadline_s=GONE_S, what="a zombie")
    assert started_at(process.pid) is None
