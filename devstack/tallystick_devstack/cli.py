"""The commands of `tally local`, for the embedded stack."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tallystick.cli.errors import ACTION_REQUIRED, exit_on_error, note, out, out_json
from tallystick_devstack import which_stack
from tallystick_devstack.commands import topic
from tallystick_devstack.commands.logs import logs
from tallystick_devstack.commands.produce import produce
from tallystick_devstack.commands.ui import ui
from tallystick_devstack.which_stack import STATE_DIR_ENV, StateDir, choose, project_dir

if TYPE_CHECKING:
    from tallystick_devstack.info import StackInfo

# Variables of a shell that would direct clients to another server or to other keys than the stack's.
FOREIGN = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL")
# Airflow prints warnings on standard output, in front of the JSON that a program reads.
SILENCED = (
    "ignore:Could not import graphviz:UserWarning",
    "ignore:GitWildMatchPattern:DeprecationWarning",
)

app = typer.Typer(
    name="local",
    help="Start, stop, show and use the embedded stack.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Project = typer.Option(
    None,
    "--project",
    help="Folder with dags/ and plugins/ (default: the project of the state's last stack; at first the parent of the "
    "state folder, or the current folder's project).",
    exists=True,
    file_okay=False,
)
AsJson = typer.Option(False, "--json", help="Print JSON.")


@app.command()
@exit_on_error
def up(
    state_dir: Path | None = StateDir,
    foreground: bool = typer.Option(
        False, "--foreground", help="Run in the foreground, until Ctrl-C."
    ),
    spark_cluster: bool = typer.Option(
        False,
        "--spark-cluster",
        help="Also start a Spark master and two workers; jobs then run there, not in local mode.",
    ),
    registry: bool = typer.Option(
        False,
        "--registry",
        help="Also start a schema registry (Apicurio Registry, with Confluent's API), as the connection `default`.",
    ),
    project: Path | None = Project,
    as_json: bool = AsJson,
) -> None:
    """Start the stack and wait until every part responds. An earlier state is used again, with its project."""
    stack = which_stack.stack_module()
    folder = choose(state_dir).folder
    chosen = project or _project_of(stack.status(folder), folder)
    parts = stack.ALL_PARTS if spark_cluster else stack.PARTS
    note(f"DAGs and jobs: {chosen} (--project names another folder){_without_dags(chosen)}")
    info = stack.up(
        folder,
        project_dir=chosen,
        parts=(*parts, stack.REGISTRY) if registry else parts,
        foreground=foreground,
        report=note,
    )
    _print_status(info, folder, as_json=as_json)


def _project_of(before: StackInfo | None, folder: Path) -> Path:
    """Return the project of a state. If it was used before, it keeps its project, so that a Clear runs the same code.

    A new state has the project that contains it; if there are no DAG files, the one of the current folder.
    """
    if before is not None and before.project_dir and Path(before.project_dir, "dags").is_dir():
        return Path(before.project_dir)
    found = project_dir(folder.resolve().parent)
    current = project_dir(Path.cwd())
    return current if _without_dags(found) and not _without_dags(current) else found


def _without_dags(project: Path | str) -> str:
    """Return a remark if a project has no folder dags/; else an empty text."""
    if Path(project, "dags").is_dir():
        return ""
    return (
        "\nThere is no dags/ in that folder, so this Airflow has no DAGs. Next: create dags/ there, or run `tally local "
        "down`, then `tally local up --project FOLDER`."
    )


@app.command()
@exit_on_error
def down(state_dir: Path | None = StateDir, as_json: bool = AsJson) -> None:
    """Stop the stack and all processes that it started. Its state is kept."""
    stack = which_stack.stack_module()
    folder = choose(state_dir).folder
    ran = stack.down(folder)
    if as_json:
        out_json({"state_dir": str(folder), "stopped": ran})
    else:
        out(f"The stack of {folder} is stopped." if ran else f"No stack runs in {folder}.")


@app.command()
@exit_on_error
def status(state_dir: Path | None = StateDir, as_json: bool = AsJson) -> None:
    """Show the parts with their state and address; exit code 77 if one is dead. Passwords are in its stack.json."""
    stack = which_stack.stack_module()
    folder = choose(state_dir).folder
    info = stack.status(folder)
    _print_status(info, folder, as_json=as_json)
    if info is not None and (info.broken or info.state == "killed"):
        note(
            "Its supervisor was killed. Next: `tally local up` starts the stack again over the same state."
            if info.state == "killed"
            else f"Failed: {', '.join(info.broken)}. Next: read their logs in {folder}, then run `tally local down` "
            "and `tally local up`."
        )
        raise typer.Exit(ACTION_REQUIRED)


@app.command()
@exit_on_error
def env(state_dir: Path | None = StateDir, as_json: bool = AsJson) -> None:
    """Print the variables that a shell needs to use the running stack: eval "$(tally local env)"."""
    chosen = choose(state_dir)
    info = which_stack.running_stack(chosen)
    variables = shell_variables(info.environment(), chosen.folder)
    if as_json:
        out_json({"state_dir": str(chosen.folder), "variables": variables})
    else:
        out(shell_lines(variables))


def shell_variables(stack: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the variables of a shell: the stack's, its state folder, and filters for warnings that Airflow would print.

    The filters that the shell has remain.
    """
    before = os.environ.get("PYTHONWARNINGS", "")
    filters = [one for one in before.split(",") if one and one not in SILENCED]
    return {
        **stack,
        STATE_DIR_ENV: str(folder),
        "PYTHONWARNINGS": ",".join((*filters, *SILENCED)),
    }


def shell_lines(variables: Mapping[str, str]) -> str:
    """Return lines for a POSIX shell that set the variables and add `airflow` and `tally` to PATH."""
    lines = [f"unset {' '.join(FOREIGN)}"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(variables.items())]
    programs = Path(sys.executable).parent
    if shutil.which("airflow") != str(programs / "airflow"):
        lines.append(f'export PATH={shlex.quote(str(programs))}:"$PATH"')
    return "\n".join(lines)


app.add_typer(topic.app)
app.command()(produce)
app.command()(logs)
app.command()(ui)


def _print_status(info: StackInfo | None, folder: Path, *, as_json: bool) -> None:
    if as_json:
        out_json(_form(info, folder))
        return
    if info is None:
        out(f"No stack was ever started in {folder}: `tally local up` starts one.")
        return
    from tallystick.cli.text import grid

    rows = [
        (part.name, part.state, part.address if part.reachable else "-")
        for part in info.parts.values()
    ]
    out(f"The stack of {folder} is {info.state}.")
    if info.project_dir:
        out(f"DAGs and jobs: {info.project_dir}{_without_dags(info.project_dir)}")
    out(grid(("part", "state", "address"), rows))
    if _airflow_url(info) is not None:
        out(
            f"Airflow: {info.airflow_url}, user {info.airflow_user}, password in {folder / 'stack.json'}"
        )


def _airflow_url(info: StackInfo) -> str | None:
    """Return the URL of Airflow's pages if a server may listen there, else None."""
    return info.airflow_url if "airflow" in info.parts and info.parts["airflow"].reachable else None


def _form(info: StackInfo | None, folder: Path) -> dict[str, Any]:
    if info is None:
        return {
            "state_dir": str(folder),
            "state": "never started",
            "parts": {},
            "airflow_url": None,
        }
    return {
        "state_dir": str(folder),
        "state": info.state,
        "supervisor_pid": info.supervisor_pid,
        "project_dir": info.project_dir,
        "airflow_url": _airflow_url(info),
        "airflow_user": info.airflow_user,
        "parts": {
            name: {
                "state": part.state,
                "address": part.address if part.reachable else None,
                "port": part.port if part.reachable else None,
                "logs": list(part.log_paths),
                "restarts": part.restarts,
            }
            for name, part in info.parts.items()
        },
    }
