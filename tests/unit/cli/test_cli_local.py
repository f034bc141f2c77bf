"""`tally local` passes its options on, and prints no password."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tallystick.cli.errors import note
from tallystick_devstack import cli as stack
from tallystick_devstack.airflow import AirflowStack
from tallystick_devstack.info import PartInfo, PartState, StackInfo, StackState
from unit.cli.invoke import tally, tally_json


def test_local_without_its_parts_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tallystick_devstack.stack", None)
    # A previous import leaves the module on its package, where `from ... import` would find it.
    monkeypatch.delattr("tallystick_devstack.stack", raising=False)
    result = tally("local", "status")
    assert result.exit_code == 77
    assert "pip install tallystick-devstack" in " ".join(result.stderr.split())


def test_local_status_and_down_without_a_stack() -> None:
    assert "No stack was ever started in" in tally("local", "status").stdout
    assert "No stack runs in" in tally("local", "down").stdout
    assert tally_json("local", "down")["stopped"] is False
    assert tally_json("local", "status")["state"] == "never started"


def test_local_up_passes_its_options_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from tallystick_devstack import stack as local_stack

    (tmp_path / "dags").mkdir()
    part = PartInfo(
        name="s3", state="running", address="http://127.0.0.1:9", port=9, pids=(1,), log_paths=()
    )
    info = StackInfo(
        state_dir=tmp_path / ".tally",
        state="running",
        supervisor_pid=2,
        parts={"s3": part},
        variables={"AWS_SECRET_ACCESS_KEY": "hidden"},
        airflow_url="http://127.0.0.1:8",
        airflow_user="admin",
        airflow_password="hidden",
    )
    options: dict[str, Any] = {}

    def up(state_dir: Any, **rest: Any) -> StackInfo:
        options.update(rest, state_dir=state_dir)
        return info

    module = SimpleNamespace(
        up=up, status=lambda _: None, PARTS=local_stack.PARTS, ALL_PARTS=local_stack.ALL_PARTS
    )
    monkeypatch.setattr(stack, "stack_module", lambda: module)
    state_dir = tmp_path / ".tally"
    tally("local", "up", "--spark-cluster", "--state-dir", str(state_dir))
    assert options["parts"] == ("kafka", "s3", "postgres", "spark", "airflow")
    result = tally("local", "up", "--state-dir", str(state_dir))
    assert options == {
        "state_dir": state_dir,
        "project_dir": tmp_path,
        "parts": ("kafka", "s3", "postgres", "airflow"),
        "foreground": False,
        "report": note,
    }
    assert "s3    running  http://127.0.0.1:9" in result.stdout
    module.status = lambda _: info
    for answer in (result, tally("local", "status", "--json")):
        assert answer.exit_code == 0
        assert "hidden" not in answer.stdout + answer.stderr


@pytest.mark.parametrize(
    ("stack_state", "part_state", "code", "shown"),
    [
        ("starting", "starting", 0, True),
        ("running", "running", 0, True),
        ("running", "failed", 77, False),
        ("stopping", "stopped", 0, False),
        ("stopped", "stopped", 0, False),
        ("killed", "dead", 77, False),
        ("killed", "stopped", 77, False),
    ],
)
def test_status_shows_an_address_only_if_something_may_answer_and_fails_if_a_part_is_dead(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    stack_state: StackState,
    part_state: PartState,
    code: int,
    shown: bool,
) -> None:
    part = PartInfo(
        name="airflow",
        state=part_state,
        address="http://127.0.0.1:8",
        port=8,
        pids=(),
        log_paths=("airflow.log",),
    )
    info = StackInfo(
        state_dir=tmp_path,
        state=stack_state,
        supervisor_pid=2,
        parts={"airflow": part},
        variables={},
        airflow_url="http://127.0.0.1:8",
        airflow_user="admin",
        airflow_password="hidden",
    )
    _set_stack(monkeypatch, info)
    text, form = tally("local", "status"), tally("local", "status", "--json")
    assert (text.exit_code, form.exit_code) == (code, code)
    assert ("127.0.0.1:8" in text.stdout) is shown
    assert f"airflow  {part_state}" in text.stdout
    assert ("Next: " in text.stderr) is (code != 0)
    address = "http://127.0.0.1:8" if shown else None
    answer = json.loads(form.stdout)
    assert (answer["airflow_url"], answer["parts"]["airflow"]["address"]) == (address, address)
    assert form.stderr == ""


@pytest.mark.parametrize(("options", "steps"), [([], "kafka: starting\n"), (["--json"], "")])
def test_up_prints_its_steps_only_without_json(
    monkeypatch: pytest.MonkeyPatch, options: list[str], steps: str
) -> None:
    def up(_: Any, *, report: Callable[[str], None], **__: Any) -> None:
        report("kafka: starting")

    monkeypatch.setattr(
        stack,
        "stack_module",
        lambda: SimpleNamespace(up=up, status=lambda _: None, PARTS=(), ALL_PARTS=()),
    )
    result = tally("local", "up", *options)
    assert result.exit_code == 0
    lines = result.stderr.splitlines(keepends=True)
    assert "".join(line for line in lines if not line.startswith("DAGs and jobs: ")) == steps


def test_up_runs_the_project_of_the_state_unless_another_one_is_chosen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    checkout, copy = tmp_path, tmp_path / ".tally" / "project"
    for project in (checkout, copy):
        (project / "dags").mkdir(parents=True)
    projects: list[Path] = []

    def up(_: Any, *, project_dir: Path, **__: Any) -> None:
        projects.append(project_dir)

    before: list[StackInfo | None] = [None]
    module = SimpleNamespace(up=up, status=lambda _: before[0], PARTS=(), ALL_PARTS=())
    monkeypatch.setattr(stack, "stack_module", lambda: module)
    words = ("local", "up", "--state-dir", str(checkout / ".tally"))
    never = tally(*words)
    assert f"DAGs and jobs: {checkout}" in never.stderr
    info = StackInfo(
        state_dir=checkout / ".tally",
        state="stopped",
        supervisor_pid=1,
        parts={},
        variables={},
        project_dir=str(copy),
    )
    before[0] = info
    again = tally(*words)
    assert f"DAGs and jobs: {copy}" in again.stderr
    tally(*words, "--project", str(checkout))
    before[0] = dataclasses.replace(info, project_dir=str(tmp_path / "gone"))
    tally(*words)
    assert projects == [checkout, copy, checkout, checkout]


def _set_stack(monkeypatch: pytest.MonkeyPatch, info: Any) -> None:
    module = SimpleNamespace(status=lambda _: info)
    monkeypatch.setattr(stack, "stack_module", lambda: module)


def test_env_is_what_a_shell_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9",
        "AIRFLOW_HOME": "/home/some body/.tally/airflow",
        "TALLYSTICK_KAFKA_DEFAULT": '{"bootstrap_servers": "127.0.0.1:8"}',
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql+psycopg2://a:@/b?host=/x'y",
    }
    _set_stack(monkeypatch, SimpleNamespace(running=True, environment=lambda: variables))
    monkeypatch.setenv(
        "PATH", os.defpath
    )  # the shell that runs the command is the shell that evaluates its output
    assert tally_json("local", "env")["variables"] == variables
    exports = tally("local", "env").stdout
    shell = subprocess.run(
        ["sh", "-c", f"eval {shlex.quote(exports)}; env -0; command -v airflow"],
        env={"PATH": os.defpath, "AWS_PROFILE": "production", "AWS_SESSION_TOKEN": "x"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    found = dict(line.split("=", 1) for line in shell[:-1])
    assert {name: found[name] for name in variables} == variables
    assert not {"AWS_PROFILE", "AWS_SESSION_TOKEN"} & found.keys()
    assert shell[-1].strip() == str(Path(sys.executable).with_name("airflow"))


@pytest.mark.parametrize("info", [None, SimpleNamespace(running=False)])
def test_env_without_a_running_stack_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, info: Any
) -> None:
    _set_stack(monkeypatch, info)
    result = tally("local", "env")
    assert (result.exit_code, result.stdout) == (77, "")
    assert "start it with `tally local up`" in " ".join(result.stderr.split())


def test_a_shell_gets_airflows_database_and_not_its_signing_keys(tmp_path: Path) -> None:
    airflow = AirflowStack(tmp_path, dags_dir=tmp_path, plugins_dir=tmp_path, database="db://x")
    variables = airflow.shell_environment()
    assert variables["AIRFLOW_HOME"] == str(tmp_path)
    assert variables["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] == "db://x"
    secrets = json.loads((tmp_path / "secrets.json").read_text())
    assert not set(secrets.values()) & set(variables.values())
    assert set(secrets.values()) - {secrets["admin_password"]} <= set(
        airflow.environment().values()
    )
