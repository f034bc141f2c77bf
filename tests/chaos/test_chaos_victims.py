"""Who is found below a scheduler, what a kill and a freeze do to it, and a disk that is really full."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from chaos.small_disk import SIZE_BYTES, CannotMount, SmallDisk
from chaos.victims import chains, freeze, is_alive, kill, thaw
from tallystick_devstack.process import wait_until

DEADLINE_S = 60.0
# A tree of processes that call themselves as Airflow's do, and wait until their standard input is closed.
TREE = """
import os, subprocess, sys
titles = sys.argv[1:]
below = []
if titles:
    words = [titles[0], "-c", sys.orig_argv[2], *titles[1:]]
    below.append(subprocess.Popen(words, executable=os.readlink('/proc/self/exe'), stdin=subprocess.PIPE))
sys.stdin.read()
for one in below:
    one.stdin.close()
    one.wait()
"""


@contextmanager
def tree(*titles: str) -> Iterator[psutil.Process]:
    """A process whose only child bears the first title, that one's child the second, and so on."""
    top = subprocess.Popen([sys.executable, "-c", TREE, *titles], stdin=subprocess.PIPE)
    try:
        one = psutil.Process(top.pid)
        wait_until(
            lambda: len(one.children(recursive=True)) == len(titles),
            deadline_s=DEADLINE_S,
            what="the tree",
        )
        yield one
    finally:
        assert top.stdin is not None
        with suppress(BrokenPipeError):
            top.stdin.close()
        top.wait(DEADLINE_S)


def test_chain_is_supervisor_task_and_what_is_below() -> None:
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
        assert chain.jvm is chain.driver is None  # nobody here is called java


def test_idle_worker_runs_no_task() -> None:
    with tree("airflow worker -- LocalExecutor: <idle>") as scheduler:
        assert chains(scheduler.pid) == []


def test_frozen_process_stays_so_until_it_is_thawed() -> None:
    with tree("airflow worker -- LocalExecutor: 01a2") as scheduler:
        (one,) = scheduler.children()
        try:
            assert freeze([one]) == (one,)
            assert one.status() == psutil.STATUS_STOPPED
        finally:
            thaw([one])
        wait_until(
            lambda: one.status() != psutil.STATUS_STOPPED,
            deadline_s=DEADLINE_S,
            what="the process going on",
        )


def test_zombie_of_a_frozen_parent_is_not_among_the_frozen() -> None:
    with tree("airflow worker -- LocalExecutor: 01a2", "worker of PySpark") as scheduler:
        parent, child = scheduler.children(recursive=True)
        try:
            freeze([parent])
            child.kill()  # nobody waits for it now
            wait_until(lambda: not is_alive(child), deadline_s=DEADLINE_S, what="the child's end")
            assert child.is_running()
            assert freeze([parent, child]) == (parent,)
        finally:
            thaw([parent])


def test_killed_process_is_gone_when_kill_returns() -> None:
    with tree("airflow worker -- LocalExecutor: 01a2") as scheduler:
        (one,) = scheduler.children()
        kill(one)
        assert not is_alive(one)
        kill(one)  # the dead are left alone


def test_full_disk_says_so_and_has_room_again(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "small")
    try:
        disk.mount()
    except CannotMount as reason:
        pytest.skip(f"a disk of its own needs root: {reason}")
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
