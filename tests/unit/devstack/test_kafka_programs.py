"""The programs that the broker needs before it runs: their failures are errors, and none is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tallystick.errors import SettingsError
from tallystick_devstack.kafka import KafkaBroker, fetch_jars
from tallystick_devstack.process import wait_until
from tallystick_devstack.stack import process_runs

DEADLINE_S = 60


def java(folder: Path, script: str) -> Path:
    """Return a JAVA_HOME whose java is a script."""
    program = folder / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return folder / "jdk"


def test_a_failed_download_shows_its_last_lines_and_the_path_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, "echo no route to host; exit 3")))
    with pytest.raises(SettingsError) as caught:
        fetch_jars(tmp_path / "cache" / "kafka")
    message = str(caught.value)
    assert "the download of Kafka" in message
    assert "ended with exit code 3" in message
    assert "no route to host" in message
    assert "check network and proxy" in message
    (log,) = (tmp_path / "cache").iterdir()
    assert str(log) in message
    assert log.read_text() == "no route to host\n"


def test_a_failed_format_is_an_error_with_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, "echo disk full; exit 1")))
    jars = tmp_path / "jars"
    jars.mkdir()
    with pytest.raises(SettingsError, match=r"formatting Kafka's folder[\s\S]*disk full"):
        KafkaBroker(tmp_path / "state", ivy_dir=jars).start()


def test_a_download_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    home = java(tmp_path, f"echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; sleep 600")
    code = (
        "import sys; from pathlib import Path; from tallystick_devstack.kafka import fetch_jars\n"
        "fetch_jars(Path(sys.argv[1]))"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "cache" / "kafka")],
        env={**os.environ, "JAVA_HOME": str(home)},
    )
    try:
        wait_until(pid_file.exists, deadline_s=DEADLINE_S, what="the download")
        starter.send_signal(signal.SIGKILL)
        pid = int(pid_file.read_text())
        wait_until(lambda: not process_runs(pid), deadline_s=DEADLINE_S, what="its end")
    finally:
        starter.kill()
        starter.wait()
