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
from tallystick_devstack import which_stack as stack
from tallystick_devstack.airflow import AirflowStack
from tallystick_devstack.cli import SILENCED
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
        up=up,
        status=lambda _: None,
        PARTS=local_stack.PARTS,
        ALL_PARTS=local_stack.ALL_PARTS,
        REGISTRY=local_stack.REGISTRY,
    )
    monkeypatch.setattr(stack, "stack_module", lambda: module)
    state_dir = tmp_path / ".tally"
    tally("local", "up", "--spark-cluster", "--state-dir", str(state_dir))
    assert options["parts"] == ("kafka", "s3", "postgres", "spark", "airflow")
    tally("local", "up", "--registry", "--state-dir", str(state_dir))
    assert options["parts"] == ("kafka", "s3", "postgres", "airflow", "registry")
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
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str], steps: str
) -> None:
    monkeypatch.chdir(tmp_path)

    def up(_: Any, *, report: Callable[[str], None], **__: Any) -> None:
        report("kafka: starting")

    monkeypatch.setattr(
        stack,
        "stack_module",
        lambda: SimpleNamespace(up=up, status=lambda _: None, PARTS=(), ALL_PARTS=()),
    )
    result = tally("local", "up", *options)
    assert result.exit_code == 0
    own = ("Stack: ", "DAGs and jobs: ", "There is no dags/")
    lines = result.stderr.splitlines(keepends=True)
    assert "".join(line for line in lines if not line.startswith(own)) == steps


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


def _running(
    state_dir: Path,
    *,
    state: StackState = "running",
    part_state: PartState = "running",
    variables: dict[str, str] | None = None,
) -> StackInfo:
    parts = {
        name: PartInfo(
            name=name,
            state=part_state,
            address="http://127.0.0.1:8",
            port=8,
            pids=(),
            log_paths=(),
        )
        for name in ("kafka", "airflow")
    }
    return StackInfo(
        state_dir=state_dir,
        state=state,
        supervisor_pid=2,
        parts=parts,
        variables=variables or {},
        airflow_url="http://127.0.0.1:8",
        airflow_user="admin",
        airflow_password="hidden",
    )


def _set_stack(monkeypatch: pytest.MonkeyPatch, info: Any) -> None:
    module = SimpleNamespace(status=lambda _: info)
    monkeypatch.setattr(stack, "stack_module", lambda: module)


def test_env_is_what_a_shell_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    variables = {
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9",
        "AIRFLOW_HOME": "/home/some body/.tally/airflow",
        "TALLYSTICK_KAFKA_DEFAULT": '{"bootstrap_servers": "127.0.0.1:8"}',
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql+psycopg2://a:@/b?host=/x'y",
    }
    state_dir = tmp_path / "a stack"
    _set_stack(monkeypatch, _running(state_dir, variables=dict(variables)))
    # The shell that runs the command is the shell that evaluates its output.
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.setenv("PYTHONWARNINGS", f"error::ResourceWarning,{SILENCED[0]}")
    variables |= {
        "TALLYSTICK_STATE_DIR": str(state_dir),
        "PYTHONWARNINGS": ",".join(("error::ResourceWarning", *SILENCED)),
    }
    monkeypatch.setenv("TALLYSTICK_STATE_DIR", str(state_dir))
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


COMMANDS = (
    ["env"],
    ["topic", "create", "a"],
    ["topic", "list"],
    ["topic", "describe", "a"],
    ["produce", "a", "-"],
    ["ui"],
    ["logs"],
    ["logs", "a"],
)


@pytest.mark.parametrize("state", [None, "stopped", "killed", "stopping"])
@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_running_stack_a_command_prints_nothing_and_names_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: list[str], state: StackState | None
) -> None:
    info = None if state is None else dataclasses.replace(_running(tmp_path), state=state)
    _set_stack(monkeypatch, info)
    result = tally("local", *command)
    assert (result.exit_code, result.stdout) == (77, "")
    stderr = " ".join(result.stderr.split())
    assert f"no stack runs in {tmp_path / 'state'}" in stderr
    assert "start it with `tally local up`" in stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_a_stack_that_starts_can_be_tried_again_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: list[str]
) -> None:
    info = _running(tmp_path, state="starting", part_state="starting")
    _set_stack(monkeypatch, info)
    result = tally("local", *command)
    assert (result.exit_code, result.stdout) == (75, "")
    assert "is starting" in result.stderr


def test_a_part_that_failed_or_is_missing_needs_a_person(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _set_stack(monkeypatch, _running(tmp_path, part_state="failed"))
    failed = tally("local", "ui")
    stderr = " ".join(failed.stderr.split())
    assert (failed.exit_code, "airflow is failed" in stderr) == (77, True)
    assert tally("local", "env").exit_code == 0  # the other parts can still be used
    _set_stack(monkeypatch, dataclasses.replace(_running(tmp_path), parts={}))
    missing = tally("local", "topic", "list")
    stderr = " ".join(missing.stderr.split())
    assert (missing.exit_code, "without kafka" in stderr) == (77, True)


def test_another_stack_that_runs_is_named_and_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    monkeypatch.setattr(stack, "running_state_dirs", lambda: [other, tmp_path / "state"])
    result = tally("local", "topic", "list")
    assert result.exit_code == 77
    stderr = " ".join(result.stderr.split())
    assert f"or name a stack that runs elsewhere: --state-dir {other}." in stderr


def test_ui_prints_the_password_only_if_it_is_requested(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _set_stack(monkeypatch, _running(tmp_path))
    place = tmp_path / "state" / "stack.json"
    plain = tally("local", "ui")
    assert "http://127.0.0.1:8" in plain.stdout
    assert str(place) in plain.stdout
    assert "hidden" not in plain.output
    assert "password: hidden" in tally("local", "ui", "--show-password").stdout
    form = tally_json("local", "ui")
    assert form["password_file"] == str(place)
    assert "airflow_password" not in form
    assert tally_json("local", "ui", "--show-password")["airflow_password"] == "hidden"


@pytest.mark.parametrize(("opens", "code"), [(True, 0), (False, 77)])
def test_ui_opens_a_browser_only_if_it_is_requested(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, opens: bool, code: int
) -> None:
    opened: list[str] = []

    def browse(url: str) -> bool:
        opened.append(url)
        return opens

    monkeypatch.setattr("webbrowser.open", browse)
    _set_stack(monkeypatch, _running(tmp_path))
    assert tally("local", "ui").exit_code == 0
    assert opened == []
    assert tally("local", "ui", "--open").exit_code == code
    assert opened == ["http://127.0.0.1:8"]


def _stack_file(state_dir: Path) -> Path:
    """Make a folder look like a stack's state."""
    state_dir.mkdir(parents=True)
    (state_dir / "stack.json").write_text('{"format": "tallystick-stack/1"}')
    return state_dir


def test_each_command_names_its_stack_and_why_it_is_this_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _set_stack(monkeypatch, None)
    project, option, variable = tmp_path / "project", tmp_path / "option", tmp_path / "variable"
    here = _stack_file(project / ".tally")
    (project / "below").mkdir()
    monkeypatch.chdir(project / "below")

    def noted(*words: str) -> list[str]:
        return tally("local", "status", *words).stderr.splitlines()

    monkeypatch.setenv("TALLYSTICK_STATE_DIR", str(variable))
    not_used = f"Not used: the stack of the current folder's project, {here}"
    assert noted("--state-dir", str(option)) == [
        f"Stack: {option} (named by --state-dir)",
        not_used,
    ]
    assert noted() == [f"Stack: {variable} (named by TALLYSTICK_STATE_DIR)", not_used]
    assert noted("--state-dir", str(here)) == [f"Stack: {here} (named by --state-dir)"]
    monkeypatch.delenv("TALLYSTICK_STATE_DIR")
    assert noted() == [f"Stack: {here} (of the project of the current folder)"]
    monkeypatch.chdir(project)
    assert noted() == [f"Stack: {here} (of the current folder)"]
    monkeypatch.setenv("AIRFLOW_HOME", str(_stack_file(variable) / "airflow"))
    first, second = noted()
    assert first == f"Stack: {here} (of the current folder)"
    assert f"This shell's variables are of another stack, {variable}" in second
    assert noted("--json") == []


def test_up_without_dag_files_states_it_and_finds_those_of_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    projects: list[Path] = []

    def up(folder: Path, *, project_dir: Path, **_: Any) -> StackInfo:
        projects.append(project_dir)
        return dataclasses.replace(_running(folder), project_dir=str(project_dir))

    module = SimpleNamespace(up=up, status=lambda _: None, PARTS=(), ALL_PARTS=())
    monkeypatch.setattr(stack, "stack_module", lambda: module)
    elsewhere, clone = tmp_path / "elsewhere", tmp_path / "clone"
    elsewhere.mkdir()
    (clone / "dags").mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    words = ("local", "up", "--state-dir", str(elsewhere / "state"))
    result = tally(*words)
    for text in (result.stdout, result.stderr):
        assert "There is no dags/ in that folder, so this Airflow has no DAGs." in text
        assert "tally local up --project FOLDER" in text
    monkeypatch.chdir(clone)
    result = tally(*words)
    assert f"DAGs and jobs: {clone} " in result.stderr
    assert "no dags/" not in result.output
    assert projects == [elsewhere, clone]


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
