"""The CPU seconds of every test and fixture, servers and child processes included: `make test-cpu` prints the dearest.

A plugin of pytest, loaded with `-p support.cpu_table` and TALLYSTICK_TEST_CPU=<folder>. Each worker of pytest-xdist adds
one line per step to a file of its own in that folder; `python tests/support/cpu_table.py <folder>` prints the table. A
process belongs to a worker if an ancestor is the worker or its environment names the worker, so that a detached server
counts too. What a server does on its own is counted in the step that runs meanwhile.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
FOLDER = os.environ.get("TALLYSTICK_TEST_CPU", "")  # read once: tests clear their environment
WORKER = "PYTEST_XDIST_WORKER"
_tags: dict[tuple[int, int], bool] = {}  # by pid and start time, since a pid is used again


def _processes() -> Iterator[tuple[int, int, int, int]]:
    """Yield pid, parent, start time and CPU ticks (its own and its reaped children's) of every process."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            yield int(folder.name), int(fields[1]), int(fields[19]), sum(map(int, fields[11:15]))


def _is_tagged(pid: int, tag: bytes) -> bool:
    try:
        return tag in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def cpu_s() -> float:
    """Return the CPU seconds of this process, its descendants, and the processes that its environment marks."""
    tag = f"{WORKER}={os.environ.get(WORKER, '')}".encode()
    found = {pid: (parent, start, ticks) for pid, parent, start, ticks in _processes()}
    ours: dict[int, bool] = {os.getpid(): True}

    def belongs(pid: int) -> bool:
        if pid not in ours:
            parent, start, _ = found.get(pid, (0, 0, 0))
            if (pid, start) not in _tags:
                _tags[pid, start] = WORKER in os.environ and _is_tagged(pid, tag)
            ours[pid] = _tags[pid, start] or (parent > 1 and belongs(parent))
        return ours[pid]

    return sum(ticks for pid, (_, _, ticks) in found.items() if belongs(pid)) / TICKS_PER_S


class _Clock:
    """Writes down what was used since the step before."""

    def __init__(self) -> None:
        self.last_s = cpu_s()

    def step(self, kind: str, name: str) -> None:
        now_s = cpu_s()
        used_s, self.last_s = max(0.0, now_s - self.last_s), now_s
        path = Path(FOLDER) / f"{os.environ.get(WORKER, 'main')}.jsonl"
        with path.open("a") as file:
            file.write(json.dumps({"kind": kind, "name": name, "cpu_s": round(used_s, 2)}) + "\n")


_clock: _Clock | None = None


def _step(kind: str, name: str) -> None:
    global _clock  # noqa: PLW0603  (one per process, made when the first step begins)
    if _clock is None:
        _clock = _Clock()
    _clock.step(kind, name)


def pytest_collection_finish(session: pytest.Session) -> None:
    _step("collect", f"collection of {len(session.items)} tests")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Generator[None, Any, Any]:
    _step("setup", request.node.nodeid.partition("[")[0])
    try:
        return (yield)
    finally:
        _step("fixture", f"{fixturedef.baseid or '.'}::{fixturedef.argname}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    _step("setup", item.nodeid.partition("[")[0])
    try:
        return (yield)
    finally:
        _step("test", item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    try:
        return (yield)
    finally:
        _step("teardown", item.nodeid.partition("[")[0])


def table(folder: Path, rows: int = 40) -> str:
    """Return the dearest steps, the sums per file and the sum of all, as text."""
    by_name: defaultdict[tuple[str, str], float] = defaultdict(float)
    by_file: defaultdict[str, float] = defaultdict(float)
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            step = json.loads(line)
            by_name[step["kind"], step["name"]] += step["cpu_s"]
            by_file[step["name"].partition("::")[0]] += step["cpu_s"]
    total_s = sum(by_file.values())
    dearest = sorted(by_name.items(), key=lambda item: -item[1])[:rows]
    files = sorted(by_file.items(), key=lambda item: -item[1])[:rows]
    return "\n".join(
        [
            f"{total_s:,.0f} CPU-s = {total_s / 60:.1f} CPU-min",
            *(f"{used_s:8.1f}  {kind:<8}  {name}" for (kind, name), used_s in dearest),
            "by file",
            *(f"{used_s:8.1f}  {name}" for name, used_s in files),
        ]
    )


if __name__ == "__main__":
    print(table(Path(sys.argv[1])))
