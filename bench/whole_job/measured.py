"""Runs a command in a control group of its own: CPU seconds and memory of the whole process tree, wall time, exit code.

Counters of the kernel, version 1 (cpuacct and memory) or 2. A sum over /proc misses processes that end between two looks,
and is wrong if a parent does not wait for its children.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tallystick.errors import SettingsError
from tallystick_devstack.process import ChildProcess

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
LEAF = "bench-harness"
SAMPLE_S, POLL_S, END_S = 0.1, 0.02, 10.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# $0 is the number of files; then the files, then the command. The shell is the process that becomes the command.
_JOIN = (
    'n=$0; while [ "$n" -gt 0 ]; do echo $$ > "$1" || exit 125; shift; n=$((n-1)); done; exec "$@"'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCost:
    """The cost of one command with all its descendants.

    `memory_bytes`: the largest anonymous memory of all processes together, looked at ten times a second. `cached_bytes`:
    the kernel's own maximum, which includes the cached pages of files. `foreign_s`: CPU seconds of all that is neither
    this tree, nor the servers, nor the harness; `stolen_s`: of other virtual machines.
    """

    exit_code: int
    wall_s: float
    cpu_s: float
    memory_bytes: int
    cached_bytes: int
    servers_s: float
    foreign_s: float
    stolen_s: float


class ControlGroup:
    """A control group below that of this process, in each hierarchy that it needs. It is removed at the end."""

    def __init__(self, name: str, *, root: Path = ROOT, own: Path = OWN) -> None:
        self._root, self._own = root, own
        self._v2 = (root / "cgroup.controllers").is_file()
        parents = self._homes()
        # Version 2 allows processes or groups with controllers in a group, not both: see `_delegate`.
        self._parents = [p.parent if p.name == LEAF else p for p in parents]
        self.folders = [parent / name for parent in self._parents]

    def create(self) -> ControlGroup:
        """Create it. Raises SettingsError if this process may not. Safe to repeat: an existing group is kept."""
        try:
            if self._v2:
                _delegate(self._parents[0])
            for folder in self.folders:
                folder.mkdir(exist_ok=True)
        except OSError as error:
            raise _refused(str(error)) from error
        missing = [path for path in (self._cpu, self._memory) if not path.is_file()]
        if missing:
            raise _refused(f"{missing[0]} does not exist")
        return self

    def end_all(self) -> None:
        """Kill its processes and wait until none is left. Safe to repeat: an empty group is not touched."""
        deadline = time.monotonic() + END_S
        while (pids := self.pids()) and time.monotonic() < deadline:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(POLL_S)

    def remove(self) -> None:
        """Remove it, when it is empty. Safe to repeat: a group that is gone is not touched."""
        for folder in self.folders:
            with suppress(FileNotFoundError):
                folder.rmdir()

    def pids(self) -> list[int]:
        """Return the processes that are in it."""
        found = set()
        for path in self.joins:
            with suppress(FileNotFoundError):
                found |= set(map(int, path.read_text().split()))
        return sorted(found)

    @property
    def joins(self) -> list[Path]:
        """The files to which a process writes its id to join the group."""
        return [folder / "cgroup.procs" for folder in self.folders]

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Move this process into the group and back: what it starts meanwhile stays there."""
        homes = self._homes()
        for path in self.joins:
            path.write_text(str(os.getpid()))
        try:
            yield
        finally:
            for folder in homes:
                (folder / "cgroup.procs").write_text(str(os.getpid()))

    def _homes(self) -> list[Path]:
        return _own_folders(self._own.read_text(), self._root, v2=self._v2)

    def cpu_s(self) -> float:
        """Return the CPU seconds that its processes have used, those that have ended included."""
        if self._v2:
            return _stat(self._cpu.read_text(), "usage_usec") / 1e6
        return int(self._cpu.read_text()) / 1e9

    def memory_bytes(self) -> int:
        """Return the anonymous memory that its processes have now."""
        return _stat(self._memory.read_text(), "anon" if self._v2 else "total_rss")

    def cached_bytes(self) -> int:
        """Return the kernel's maximum of its memory with cached pages; 0 if the kernel does not keep it."""
        path = self._memory.with_name("memory.peak" if self._v2 else "memory.max_usage_in_bytes")
        return int(path.read_text()) if path.is_file() else 0

    @property
    def _cpu(self) -> Path:
        return self.folders[0] / ("cpu.stat" if self._v2 else "cpuacct.usage")

    @property
    def _memory(self) -> Path:
        return self.folders[-1] / "memory.stat"


def run_measured(
    argv: Sequence[str | Path],
    *,
    name: str,
    env: Mapping[str, str],
    output: Path,
    timeout_s: float,
    cwd: Path | None = None,
    servers: ControlGroup | None = None,
    look: Callable[[list[int]], None] | None = None,
) -> ProcessCost:
    """Run the command to its end and return what it cost; its output goes to the file `output`.

    `look` is called every few milliseconds with the ids of its processes.

    All its processes are killed when it ends, also if this process dies first. Raises SettingsError if no control group
    can be created, or if the command is still running after `timeout_s`.
    """
    group = ControlGroup(f"bench-{os.getpid()}-{name}").create()
    joins = group.joins
    words = ["/bin/sh", "-c", _JOIN, str(len(joins)), *map(str, (*joins, *argv))]
    before = _Machine.read(servers)
    began, memory, looked = time.monotonic(), 0, 0.0
    try:
        # Its warden is not in the group. It kills what outlives the command, and all if this process dies.
        with ChildProcess(words, name=name, log_path=output, env=env, cwd=cwd) as child:
            while child.alive:
                now = time.monotonic()
                if look is not None:
                    look(group.pids())
                if now - looked >= SAMPLE_S:
                    memory, looked = max(memory, group.memory_bytes()), now
                if now - began > timeout_s:
                    raise SettingsError(
                        f"{name} did not end within {timeout_s:g} s.", hint=f"read {output}."
                    )
                time.sleep(POLL_S)
            wall_s = time.monotonic() - began
        group.end_all()
        after, cpu_s, cached = _Machine.read(servers), group.cpu_s(), group.cached_bytes()
    finally:
        group.end_all()
        group.remove()
    return ProcessCost(
        exit_code=child.exit_code or 0,
        wall_s=wall_s,
        cpu_s=cpu_s,
        memory_bytes=memory,
        cached_bytes=cached,
        servers_s=after.servers_s - before.servers_s,
        foreign_s=max(0.0, after.foreign_s - before.foreign_s - cpu_s),
        stolen_s=after.stolen_s - before.stolen_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Machine:
    """What the whole machine has used. `foreign_s` is without the servers and this process, but with what is measured."""

    servers_s: float
    foreign_s: float
    stolen_s: float

    @classmethod
    def read(cls, servers: ControlGroup | None) -> _Machine:
        words = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
        user, nice, system, _idle, _wait, interrupts, soft, stolen = map(int, words[:8])
        servers_s = servers.cpu_s() if servers is not None else 0.0
        own = os.times()
        busy_s = (user + nice + system + interrupts + soft) / TICKS_PER_S
        return cls(
            servers_s=servers_s,
            foreign_s=busy_s - servers_s - own.user - own.system,
            stolen_s=stolen / TICKS_PER_S,
        )


def _delegate(group: Path) -> None:
    """Let groups below `group` have the memory controller (version 2): its processes move to a leaf first.

    Safe to repeat: if the controller is passed on already, nothing is done.
    """
    control = group / "cgroup.subtree_control"
    if "memory" in control.read_text().split():
        return
    leaf = group / LEAF
    leaf.mkdir(exist_ok=True)
    for pid in (group / "cgroup.procs").read_text().split():
        with suppress(ProcessLookupError):
            (leaf / "cgroup.procs").write_text(pid)
    control.write_text("+memory")


def _own_folders(text: str, root: Path, *, v2: bool) -> list[Path]:
    """Return the folders of the group that this process is in: of cpuacct and memory, or the one of version 2."""
    lines = [line.split(":", 2) for line in text.splitlines()]
    if v2:
        return [root / path.lstrip("/") for _, names, path in lines if not names]
    places = {
        name: root / name / path.lstrip("/")
        for _, names, path in lines
        for name in names.split(",")
        if name in ("cpuacct", "memory")
    }
    if set(places) != {"cpuacct", "memory"}:
        raise _refused("this process is in no group of cpuacct and memory")
    return [places["cpuacct"], places["memory"]]


def _stat(text: str, name: str) -> int:
    return next(int(line.split()[1]) for line in text.splitlines() if line.split()[0] == name)


def _refused(why: str) -> SettingsError:
    return SettingsError(
        f"the benchmark needs a control group for the CPU seconds and the memory of a process tree: {why}.",
        hint="run it as root, or in a systemd scope with Delegate=yes: "
        "systemd-run --user --scope -p Delegate=yes make bench.",
    )
