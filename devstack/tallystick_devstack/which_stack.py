"""Chooses the stack of a `tally local` command, names it on standard error, and explains if there is none to use."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import typer

from tallystick.cli.errors import note
from tallystick.errors import RetryLater, SettingsError

if TYPE_CHECKING:
    from tallystick_devstack.info import StackInfo

STATE_DIR = ".tally"
STATE_DIR_ENV = "TALLYSTICK_STATE_DIR"
OPTION = "--state-dir"

StateDir = typer.Option(
    None,
    OPTION,
    help=f"Folder of the stack's state (default: ${STATE_DIR_ENV}, else {STATE_DIR} of the project).",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The state folder of a command, and `why` it is this one."""

    folder: Path
    why: str


def choose(state_dir: Path | None, *, quiet: bool = False) -> Chosen:
    """Return the state folder of a command, and name it on standard error unless `quiet`.

    The order is --state-dir, TALLYSTICK_STATE_DIR, .tally in the project of the current folder. If the current folder or
    the variables of this shell lead to another stack, that is noted too.
    """
    of_folder = project_dir(Path.cwd()) / STATE_DIR
    named = os.environ.get(STATE_DIR_ENV)
    if state_dir is not None:
        chosen = Chosen(folder=state_dir.absolute(), why=f"named by {OPTION}")
    elif named:
        chosen = Chosen(folder=Path(named).absolute(), why=f"named by {STATE_DIR_ENV}")
    else:
        upwards = "" if of_folder.parent == Path.cwd() else "the project of "
        chosen = Chosen(folder=of_folder, why=f"of {upwards}the current folder")
    if not quiet:
        for line in _lines(chosen, of_folder):
            note(line)
    return chosen


def _lines(chosen: Chosen, of_folder: Path) -> list[str]:
    from tallystick_devstack.info import is_state_dir

    lines = [f"Stack: {chosen.folder} ({chosen.why})"]
    if not _same(of_folder, chosen.folder) and is_state_dir(of_folder):
        lines.append(f"Not used: the stack of the current folder's project, {of_folder}")
    home = os.environ.get("AIRFLOW_HOME")
    of_shell = Path(home).parent if home else None
    if of_shell is not None and is_state_dir(of_shell) and not _same(of_shell, chosen.folder):
        lines.append(
            f"This shell's variables are of another stack, {of_shell}: `airflow`, and `tally` with a lake, use that one."
        )
    return lines


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def project_dir(start: Path) -> Path:
    """Return the nearest folder upwards that has a stack's state or DAG files, or `start` if there is none."""
    for folder in (start, *start.parents):
        if (folder / STATE_DIR).is_dir() or (folder / "dags").is_dir():
            return folder
    return start


def stack_module() -> ModuleType:
    """Import tallystick_devstack.stack. Raises SettingsError if a module that it needs is not installed."""
    try:
        from tallystick_devstack import stack
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"the embedded stack needs the module {error.name}, which is not installed.",
            hint="install it with: pip install tallystick-devstack.",
        ) from error
    return stack


def running_stack(chosen: Chosen, *parts: str) -> StackInfo:
    """Return the stack of a state folder, of which the named parts run; without names, it has started completely.

    Raises RetryLater while it starts, SettingsError if the stack or a part does not run. The error names the stacks
    that run elsewhere on this machine; none of them is used unless the user names it.
    """
    info: StackInfo | None = stack_module().status(chosen.folder)
    if info is None or info.state in ("stopped", "stopping", "killed"):
        raise SettingsError(
            f"no stack runs in {chosen.folder} ({chosen.why}).",
            hint="start it with `tally local up`" + _elsewhere(chosen.folder),
        )
    lacking = [name for name in parts if name not in info.parts]
    if lacking:
        raise SettingsError(
            f"the stack in {chosen.folder} was started without {', '.join(lacking)}.",
            hint="stop it with `tally local down` and start it with `tally local up`.",
        )
    if not parts and info.running:
        return info
    states = {name: info.parts[name].state for name in parts or info.parts}
    down = {name: state for name, state in states.items() if state != "running"}
    shown = ", ".join(f"{name} is {state}" for name, state in down.items())
    if set(down.values()) & {"failed", "dead"}:
        raise SettingsError(
            f"the stack in {chosen.folder}: expected {', '.join(down)} running, found: {shown}.",
            hint="read its logs (`tally local status --json` names them), then run `tally local down` and `tally local "
            "up`.",
        )
    if down or not parts:
        raise RetryLater(
            f"the stack in {chosen.folder}: expected a running one, found: {shown or 'it is starting'}.",
            hint="wait until `tally local status` shows it as running.",
        )
    return info


def _elsewhere(folder: Path) -> str:
    found = [other for other in running_state_dirs() if not _same(other, folder)]
    if not found:
        return "."
    return (
        f", or name a stack that runs elsewhere: {' or '.join(f'{OPTION} {one}' for one in found)}."
    )


def running_state_dirs() -> list[Path]:
    """Return the state folders of the stacks in the background that run on this machine and that this user may read."""
    import psutil

    from tallystick_devstack.info import supervisor_pid

    found = set()
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "tallystick_devstack.supervisor" in words[:-1]:
            folder = Path(words[words.index("tallystick_devstack.supervisor") + 1])
            try:
                if supervisor_pid(folder) == process.pid:
                    found.add(folder)
            except (OSError, ValueError):
                continue  # another user's, or removed
    return sorted(found)
