"""The processes below a scheduler, what kill and freeze do to them, and a disk that is really full."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from chaos.small_disk import SIZE_BYTES, MountError, SmallDisk
from chaos.victims import chains, freeze, is_alive, kill, thaw
from tallystick_devstack.process import wait_until

DEADLINE_S = 60.0
# A tree of processes with the titles of Airflow's, which wait until their standard input is closed.
TREE = """
import os, subprocess, sys
titles = sys.argv[1:]
below = []
if titles:
    words = [titles[0], "-c", sys.orig_argv[2], *titles[1:]]
    below.append(subprocess.Popen(words, executable=os.readlink('/proc/self/exe'), stdin=subprocess.PIPE))
sys.stdin.read()
for child in below:
    child.stdin.close()
    child.wait()
"""


@contextmanager
def tree(*titles: str) -> Iterator[psutil.Process]:
    """Start a process whose only child has the first title, the child of that one the second, and so on."""
    root = subprocess.Popen([sys.executable, "-c", TREE, *titles], stdin=subprocess.PIPE)
    try:
        process = psutil.Process(root.pid)
        wait_until(
            lambda: len(process.children(recursive=True)) == len(titles),
            deadline_s=DEADLINE_S,
            what="the tree",
        )
        yield process
    finally:
        assert root.stdin is not None
        with suppress(BrokenPipeError):
            root.stdin.close()
        root.wait(DEADLINE_S)


def test_chain_is_supervisor_task_and_their_descendants() -> None:
    titles = (
        "airflow worker -- LocalExecutor: 01a2",
        "airflow worker -- 01a2",
        "java-like",
        "driver",
    )
    with tree(*titles) as scheduler:
        (chain,) = chains(scheduler.pid)
        supervisor, task, *below = scheduler.children(recursive=True)
        assert (chain.supervisor, chain.task) == (supervisor, task)
        assert list(chain.below) == below
        assert chain.holds(below[1].pid)
        assert not chain.holds(scheduler.pid)
        assert chain.jvm is chain.driver is None  # no process is named java


def test_idle_worker_runs_no_task() -> None:
    with tree("airflow worker -- LocalExecutor: <idle>") as scheduler:
        assert chains(scheduler.pid) == []


def test_frozen_process_is_stopped_until_it_is_thawed() -> None:
    with tree("airflow worker -- LocalExecutor: 01a2") as scheduler:
        (process,) = scheduler.children()
        try:
            assert freeze([process]) == (process,)
            assert process.status() == psutil.STATUS_STOPPED
        finally:
            thaw([process])
        wait_until(
            lambda: process.status() != psutil.STATUS_STOPPED,
            deadline_s=DEADLINE_S,
            what="the process to continue",
        )


def test_zombie_of_a_frozen_parent_is_not_returned_as_frozen() -> None:
    with tree("airflow worker -- LocalExecutor: 01a2", "worker of PySpark") as scheduler:
        parent, child = scheduler.children(recursive=True)
        try:
            freeze([parent])
            child.kill()  # its parent is frozen and does not wait for it
            wait_until(lambda: not is_alive(child), deadline_s=DEADLINE_S, what="the child's end")
            assert child.is_running()
            assert freeze([parent, child]) == (parent,)
        finally:
            thaw([parent])


def test_killed_process_is_gone_when_kill_returns() -> None:
    with tree("airflow worker -- LocalExecutor: 01a2") as scheduler:
        (process,) = scheduler.children()
        kill(process)
        assert not is_alive(process)
        kill(process)  # a dead process is not an error


def test_full_disk_refuses_writes_and_has_room_after_a_drain(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "small")
    try:
        disk.mount()
    except MountError as reason:
        pytest.skip(f"mounting a small disk needs root: {reason}")
    try:
        disk.fill(but_bytes=4096)
        (disk.folder / "a").write_bytes(bytes(4096))
        with pytest.raises(OSError, match="No space left") as full:
            (disk.folder / "b").write_bytes(b"x")
        assert full.value.errno == errno.ENOSPC
        disk.drain()
        (disk.folder / "b").write_bytes(bytes(SIZE_BYTES // 2))
    finally:
        disk.unmount()
    assert not (disk.folder / "b").exists()
