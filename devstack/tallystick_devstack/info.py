"""Describes a stack for other processes: the file `stack.json` in its state folder, and a lock file next to it.

The supervisor writes both, and other processes only read them. The lock is the kernel's (flock), which frees it as soon
as its holder ends for any reason. So if the file has the state "running", this counts only while the lock is held.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

from tallystick.errors import InvalidRequest, SettingsError
from tallystick_devstack.airflow_api import AirflowApi
from tallystick_devstack.kafka_login import confluent_words
from tallystick_devstack.logins import FILE as LOGINS_FILE
from tallystick_devstack.private_file import write_private

PARTS = ("kafka", "s3", "postgres", "airflow")
"""The default parts of a stack. Without `spark`, drivers run in local mode."""
ALL_PARTS = ("kafka", "s3", "postgres", "spark", "airflow")
"""The parts of a stack with a Spark cluster."""
REGISTRY = "registry"
"""The schema registry, a part that starts only if it is requested."""
STARTING_ORDER = ("kafka", "s3", REGISTRY, "postgres", "spark", "airflow")
"""Every part that a stack can have."""
LAKE_BUCKET = "lake"
_FORMAT = "tallystick-stack/1"
_FILE = "stack.json"
_LOCK = "supervisor.lock"
SUPERVISOR_LOG = "supervisor.log"

PartState = Literal["starting", "running", "failed", "stopped", "dead"]
StackState = Literal["starting", "running", "stopping", "stopped", "killed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartInfo:
    """One part of a stack. `pids` are the ids of the wardens, `address` is the address for clients."""

    name: str
    state: PartState
    address: str
    port: int | None
    pids: tuple[int, ...]
    log_paths: tuple[str, ...]
    restarts: int = 0

    @property
    def reachable(self) -> bool:
        """True if a server may listen at the address: the part is starting or running."""
        return self.state in ("starting", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class StackInfo:
    """A stack as its supervisor last described it. `state` is "killed" if the supervisor died without a clean stop.

    `project_dir`: the folder whose dags/ and plugins/ its Airflow runs.
    """

    state_dir: Path
    state: StackState
    supervisor_pid: int
    parts: dict[str, PartInfo]
    variables: dict[str, str] = field(repr=False)
    project_dir: str = ""
    airflow_url: str | None = None
    airflow_user: str | None = None
    airflow_password: str | None = field(default=None, repr=False)

    @property
    def running(self) -> bool:
        """True if every part of the stack has started."""
        return self.state == "running"

    @property
    def broken(self) -> tuple[str, ...]:
        """The names of the parts that do not run although they were not stopped: dead, or failed after their restarts."""
        return tuple(name for name, part in self.parts.items() if part.state in ("dead", "failed"))

    def environment(self) -> dict[str, str]:
        """Return the environment variables of the stack: AWS_*, TALLYSTICK_*_DEFAULT, AIRFLOW_HOME, AIRFLOW__*."""
        return dict(self.variables)

    def kafka_client(self) -> dict[str, str]:
        """Return the settings of a confluent-kafka client for the stack's Kafka, with the password."""
        return confluent_words(self.variables["TALLYSTICK_KAFKA_DEFAULT"])

    def airflow(self) -> AirflowApi:
        """Return a client of the stack's Airflow. Raises SettingsError if the stack has none."""
        if self.airflow_url is None or self.airflow_user is None or self.airflow_password is None:
            raise SettingsError(
                "this stack runs without Airflow.", hint="start it with all its parts."
            )
        return AirflowApi(self.airflow_url, self.airflow_user, self.airflow_password)


def read_stack(state_dir: Path) -> StackInfo | None:
    """Return the stack that the state folder describes, or None if there never was one.

    Raises SettingsError if the file has the format of another version.
    """
    try:
        content = json.loads((state_dir / _FILE).read_text())
    except FileNotFoundError:
        return None
    if content.pop("format", None) != _FORMAT:
        raise SettingsError(
            f"{state_dir / _FILE}: expected the format {_FORMAT}, found another.",
            hint="stop that stack with the version that started it, or remove the folder.",
        )
    parts = {
        name: PartInfo(
            **part | {"pids": tuple(part["pids"]), "log_paths": tuple(part["log_paths"])}
        )
        for name, part in content.pop("parts").items()
    }
    info = StackInfo(**content, parts=parts, state_dir=state_dir)
    if info.state != "stopped" and supervisor_pid(state_dir) is None:
        return replace(info, state="killed", parts={n: _dead(part) for n, part in parts.items()})
    return info


def _dead(part: PartInfo) -> PartInfo:
    """Return the part as dead if it ran when its supervisor died: its warden kills it within seconds."""
    return replace(part, state="dead", pids=()) if part.reachable else part


def is_state_dir(folder: Path) -> bool:
    """Return True if the folder has the state of a stack of any version: a stack.json or a lock file of a stack."""
    try:
        content = json.loads((folder / _FILE).read_text())
        if str(content["format"]).startswith("tallystick-stack/"):
            return True
    except (OSError, ValueError, LookupError, TypeError):
        pass
    try:
        return (folder / _LOCK).read_text().strip().isdecimal()
    except (OSError, ValueError):
        return False


def is_state_name(name: str) -> bool:
    """Return True if a stack creates a file or folder of that name in its state folder."""
    names = {*STARTING_ORDER, _LOCK, SUPERVISOR_LOG}
    names |= {f"{file}{end}" for file in (_FILE, LOGINS_FILE) for end in ("", ".new")}
    return name in names or (name.startswith("supervisor.") and name.endswith(".log"))


def write_stack(info: StackInfo) -> None:
    """Replace the stack.json of a stack. Safe to repeat: one rename puts it in place, and the last one remains."""
    content = asdict(info)
    del content["state_dir"]
    write_private(info.state_dir / _FILE, json.dumps({"format": _FORMAT} | content, indent=1))


@contextlib.contextmanager
def supervisor_lock(state_dir: Path) -> Iterator[None]:
    """Hold the lock of a state folder. Raises SettingsError with the id of the process that already holds it."""
    with (state_dir / _LOCK).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise SettingsError(
                f"another stack runs in {state_dir} (process {file.read().strip() or 'unknown'}).",
                hint="use it, or stop it with `tally local down`.",
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def supervisor_pid(state_dir: Path) -> int | None:
    """Return the id of the process that holds the folder's lock now, or None if it is free."""
    try:
        file = (state_dir / _LOCK).open()
    except FileNotFoundError:
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            words = file.read().strip()
            return int(words) if words else None
        return None


def parts_to_start(parts: Collection[str]) -> tuple[str, ...]:
    """Return the parts in starting order, with Airflow's database. Raises InvalidRequest for none or unknown parts."""
    unknown = set(parts) - set(STARTING_ORDER)
    if unknown or not parts:
        raise InvalidRequest(
            f"expected parts of the stack, found {', '.join(sorted(unknown)) or 'none'}.",
            hint=f"use some of {', '.join(STARTING_ORDER)}.",
        )
    needed = set(parts) | ({"postgres"} if "airflow" in parts else set())
    return tuple(name for name in STARTING_ORDER if name in needed)
