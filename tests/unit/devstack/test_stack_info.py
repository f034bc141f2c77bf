"""The content of `stack.json` counts only while a supervisor holds the lock."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tallystick.errors import InvalidRequest, SettingsError
from tallystick_devstack.info import (
    PartInfo,
    PartState,
    StackInfo,
    parts_to_start,
    read_stack,
    supervisor_lock,
    supervisor_pid,
    write_stack,
)


def described(state_dir: Path) -> StackInfo:
    part = PartInfo(
        name="s3",
        state="running",
        address="http://127.0.0.1:1",
        port=1,
        pids=(2,),
        log_paths=("s3.log",),
        restarts=0,
    )
    return StackInfo(
        state_dir=state_dir,
        state="running",
        supervisor_pid=os.getpid(),
        parts={"s3": part},
        variables={"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"},
        airflow_url="http://127.0.0.1:3",
        airflow_user="admin",
        airflow_password="hunter2",
    )


def test_a_description_is_read_as_it_was_written_and_for_its_owner_only(tmp_path: Path) -> None:
    with supervisor_lock(tmp_path):
        write_stack(described(tmp_path))
        assert read_stack(tmp_path) == described(tmp_path)
    assert stat.S_IMODE((tmp_path / "stack.json").stat().st_mode) == 0o600


def test_without_its_supervisor_a_running_stack_is_a_killed_one(tmp_path: Path) -> None:
    write_stack(described(tmp_path))
    info = read_stack(tmp_path)
    assert info is not None
    assert info.state == "killed"
    assert not info.running
    assert info.parts["s3"].state == "dead"
    assert info.parts["s3"].pids == ()
    assert not info.parts["s3"].reachable
    assert info.broken == ("s3",)


@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_a_part_that_was_down_before_the_supervisor_was_killed_keeps_its_state(
    tmp_path: Path, state: PartState
) -> None:
    info = described(tmp_path)
    part = dataclasses.replace(info.parts["s3"], state=state)
    write_stack(dataclasses.replace(info, parts={"s3": part}))
    read = read_stack(tmp_path)
    assert read is not None
    assert read.parts["s3"].state == state


def test_a_stopped_stack_stays_stopped(tmp_path: Path) -> None:
    write_stack(dataclasses.replace(described(tmp_path), state="stopped"))
    info = read_stack(tmp_path)
    assert info is not None
    assert info.state == "stopped"


def test_a_folder_without_a_stack_has_no_description(tmp_path: Path) -> None:
    assert read_stack(tmp_path / "nowhere") is None
    assert supervisor_pid(tmp_path / "nowhere") is None


def test_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "stack.json").write_text(json.dumps({"format": "tallystick-stack/99", "parts": {}}))
    with pytest.raises(SettingsError, match="expected the format tallystick-stack/1"):
        read_stack(tmp_path)


def test_a_description_shows_no_secrets(tmp_path: Path) -> None:
    assert "hunter2" not in repr(described(tmp_path))


def test_a_stack_without_airflow_has_no_airflow_address(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="without Airflow"):
        dataclasses.replace(described(tmp_path), airflow_url=None).airflow()


def test_a_second_supervisor_is_refused_with_the_first_ones_id_until_that_one_is_gone(
    tmp_path: Path,
) -> None:
    holder = (
        "import sys; from pathlib import Path; from tallystick_devstack.info import supervisor_lock\n"
        "with supervisor_lock(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert supervisor_pid(tmp_path) == process.pid
        with (
            pytest.raises(SettingsError, match=rf"another stack runs .*process {process.pid}"),
            supervisor_lock(tmp_path),
        ):
            pass
        process.kill()
    assert supervisor_pid(tmp_path) is None
    with supervisor_lock(tmp_path):
        assert supervisor_pid(tmp_path) == os.getpid()


@pytest.mark.parametrize(
    ("requested", "started"),
    [
        ({"airflow"}, ("postgres", "airflow")),
        ({"s3", "kafka"}, ("kafka", "s3")),
        ({"airflow", "s3", "kafka", "postgres"}, ("kafka", "s3", "postgres", "airflow")),
        ({"airflow", "spark"}, ("postgres", "spark", "airflow")),
        ({"airflow", "registry", "s3"}, ("s3", "registry", "postgres", "airflow")),
    ],
)
def test_parts_start_in_a_fixed_order_and_airflow_includes_its_database(
    requested: set[str], started: tuple[str, ...]
) -> None:
    assert parts_to_start(requested) == started


@pytest.mark.parametrize("requested", [{"redis"}, set()])
def test_unknown_parts_are_named_with_the_known_ones(requested: set[str]) -> None:
    with pytest.raises(
        InvalidRequest,
        match=r"expected parts of the stack.*kafka, s3, registry, postgres, spark, airflow",
    ):
        parts_to_start(requested)
