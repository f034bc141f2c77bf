"""What a measured process tree costs: its control group, of either version of the kernel's interface."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.whole_job.measured import LEAF, ControlGroup, run_measured
from support.control_groups import needs_group
from tallystick.errors import SettingsError
from tallystick_devstack.process import started_at, wait_until

REPO = Path(__file__).parents[3]
BURN = "import os; t = os.times; \nwhile t().user + t().system < 0.4: pass"


def _v1(root: Path, *, files: bool = True) -> Path:
    for name, file, text in (
        ("cpuacct", "cpuacct.usage", "2500000000\n"),
        ("memory", "memory.stat", "rss 1\ntotal_rss 4096\n"),
    ):
        group = root / name / "user" / "g"
        group.mkdir(parents=True)
        (group / "cgroup.procs").touch()
        if files:
            (group / file).write_text(text)
    own = root / "own"
    own.write_text("9:name=systemd:/\n4:memory:/user\n2:cpuacct:/user\n0::/\n")
    return own


def _v2(root: Path) -> Path:
    (root / "cgroup.controllers").write_text("cpu memory\n")
    scope = root / "scope"
    for folder in (scope / "g", scope / LEAF):
        folder.mkdir(parents=True)
    (scope / "cgroup.procs").write_text("11\n12\n")
    (scope / LEAF / "cgroup.procs").touch()
    (scope / "cgroup.subtree_control").touch()
    (scope / "g" / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    (scope / "g" / "memory.stat").write_text("anon 4096\nfile 9\n")
    (scope / "g" / "memory.peak").write_text("8192\n")
    (scope / "g" / "cgroup.procs").touch()
    own = root / "own"
    own.write_text("0::/scope\n")
    return own


def test_version_1_has_its_counters_in_two_hierarchies(tmp_path: Path) -> None:
    group = ControlGroup("g", root=tmp_path, own=_v1(tmp_path)).create()
    assert (group.cpu_s(), group.memory_bytes(), group.cached_bytes()) == (2.5, 4096, 0)
    assert len(group.joins) == 2


def test_version_2_has_its_counters_in_one_group_whose_parent_has_no_processes(
    tmp_path: Path,
) -> None:
    own = _v2(tmp_path)
    group = ControlGroup("g", root=tmp_path, own=own).create()
    assert (group.cpu_s(), group.memory_bytes(), group.cached_bytes()) == (2.5, 4096, 8192)
    assert (tmp_path / "scope/cgroup.subtree_control").read_text() == "+memory"
    assert (tmp_path / "scope" / LEAF / "cgroup.procs").read_text() == "12"
    own.write_text(f"0::/scope/{LEAF}\n")
    (tmp_path / "scope/cgroup.subtree_control").write_text("cpu memory\n")
    assert ControlGroup("g", root=tmp_path, own=own).folders == group.folders


def test_a_machine_without_the_counters_is_refused_with_the_next_step(tmp_path: Path) -> None:
    own = _v1(tmp_path, files=False)
    with pytest.raises(SettingsError, match=r"cpuacct\.usage does not exist") as raised:
        ControlGroup("g", root=tmp_path, own=own).create()
    assert "systemd-run" in raised.value.hint
    own.write_text("0::/\n")
    with pytest.raises(SettingsError, match="no group of cpuacct and memory"):
        ControlGroup("g", root=tmp_path, own=own)


def _run(script: str, output: Path, timeout_s: float = 60) -> tuple[int, float, int]:
    cost = run_measured(
        [sys.executable, "-c", script],
        name=f"test-{output.name}",
        env={"PATH": os.environ["PATH"]},
        output=output,
        timeout_s=timeout_s,
    )
    return cost.exit_code, cost.cpu_s, cost.memory_bytes


@needs_group
def test_the_cpu_seconds_of_a_child_that_is_never_waited_for_count(tmp_path: Path) -> None:
    script = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {BURN!r}], stdout=subprocess.PIPE)
child.stdout.read()
"""
    code, cpu_s, _ = _run(script, tmp_path / "log")
    assert code == 0
    assert cpu_s > 0.4


@needs_group
def test_the_exit_code_and_the_output_are_kept(tmp_path: Path) -> None:
    code, *_ = _run("print('seen'); raise SystemExit(7)", tmp_path / "log")
    assert code == 7
    assert (tmp_path / "log").read_text() == "seen\n"


@needs_group
def test_memory_that_is_freed_before_the_end_is_in_the_peak(tmp_path: Path) -> None:
    script = "import time; block = bytearray(b'x') * (64 << 20); time.sleep(0.5); del block"
    _, _, memory_bytes = _run(script, tmp_path / "log")
    assert memory_bytes > 64 << 20


@needs_group
def test_a_process_that_outlives_the_command_is_killed(tmp_path: Path) -> None:
    script = """
import subprocess
print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)
"""
    code, *_ = _run(script, tmp_path / "log")
    assert code == 0
    assert started_at(int((tmp_path / "log").read_text())) is None


@needs_group
def test_what_is_measured_ends_with_the_process_that_measures(tmp_path: Path) -> None:
    log = tmp_path / "log"
    measured = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    script = f"""
import os, sys
from pathlib import Path
from bench.whole_job.measured import run_measured
run_measured([sys.executable, "-c", {measured!r}], name="x", env=os.environ, output=Path({str(log)!r}), timeout_s=600)
"""
    measuring = subprocess.Popen([sys.executable, "-c", script], cwd=REPO)
    wait_until(lambda: log.exists() and log.read_text() != "", deadline_s=60, what="the start")
    measuring.kill()
    measuring.wait()
    pid = int(log.read_text())
    wait_until(lambda: started_at(pid) is None, deadline_s=60, what="the end of the command")
    for folder in Path("/sys/fs/cgroup").glob(f"*/bench-{measuring.pid}-x"):
        folder.rmdir()


@needs_group
def test_a_command_that_does_not_end_is_killed(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"did not end within 0\.3 s"):
        _run("import time; time.sleep(60)", tmp_path / "log", timeout_s=0.3)
    assert not list(Path("/sys/fs/cgroup").glob(f"*/bench-{os.getpid()}-test-log"))
