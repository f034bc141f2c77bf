"""The benchmark of the start: each process has its part, each module its library, and all seconds are in the tables."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bench.whole_job.bundle import main, sealed, write_bundle
from bench.whole_job.page import page
from bench.whole_job.start.imports import LIBRARIES, PROFILE, STANDARD, import_seconds
from bench.whole_job.start.processes import (
    DAEMON,
    JVM_DRIVER,
    JVM_LAUNCHER,
    OTHER,
    PYTHON,
    WORKER,
    ProcessTimes,
    part_of,
)
from bench.whole_job.start.report import ENDED, WHAT, parts, text_report

WORDS = {
    1: ["/bin/sh", "-c", "x"],
    2: ["/usr/bin/java", "-cp", "x", "org.apache.spark.launcher.Main"],
    3: ["/usr/bin/java", "-cp", "x", "org.apache.spark.deploy.SparkSubmit", "job.py"],
    4: ["/venv/bin/python", "job.py"],
    5: ["/venv/bin/python", "-m", "tallystick.spark.daemon"],
    6: ["/venv/bin/python3.11", "-m", "pyspark.daemon"],
    7: ["/venv/bin/python", "-m", "tallystick.spark.daemon"],
}
PARENTS = {5: 3, 6: 3, 7: 5}


@pytest.mark.parametrize(
    ("pid", "expected"),
    [
        *((1, OTHER), (2, JVM_LAUNCHER), (3, JVM_DRIVER), (4, PYTHON), (5, DAEMON), (6, DAEMON)),
        *((7, WORKER), (8, OTHER)),
    ],
)
def test_the_part_of_a_process(pid: int, expected: str) -> None:
    assert part_of(pid, WORDS, PARENTS) == expected


def test_the_seconds_of_a_process_are_those_of_the_last_look() -> None:
    times = ProcessTimes()
    busy = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        times.look([process.pid])
        process.communicate(b"\n")
    times.look([process.pid])
    assert times.by_part()[PYTHON] >= 0.25


def test_a_process_that_became_another_program_is_that_one(tmp_path: Path) -> None:
    folder = tmp_path / "9"
    folder.mkdir()
    times = ProcessTimes(proc=tmp_path)
    for words, ticks in (("/bin/sh\0-c\0x", 0), ("/venv/bin/python\0job.py", 200), ("", 300)):
        (folder / "stat").write_text(f"9 (a) b) S 1 {'0 ' * 9}{ticks} 100 0")
        (folder / "cmdline").write_text(words)
        times.look([9, 10])
    assert list(times.by_part()) == [PYTHON]


def test_the_seconds_of_imports_by_library() -> None:
    output = (
        "import time: self [us] | cumulative | imported package\n"
        "import time:      1000 |       1000 |   kafka.net\n"
        "import time:   2000000 |    2001000 | kafka\n"
        "import time:       500 |        500 |     tallystick.lake\n"
        "WARN import time is not a line of it\n"
        "import time:       250 |        250 | dataclasses\n"
    )
    assert import_seconds(output) == pytest.approx(
        {"client of Kafka": 2.001, "tallystick": 0.0005, STANDARD: 0.00025}
    )


def test_the_profile_is_that_of_python() -> None:
    began = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-c", "import json, numpy"],
        env=PROFILE,
        capture_output=True,
        text=True,
        check=True,
    )
    found = import_seconds(ended.stderr)
    assert 0 < found["PyArrow and numpy"] < time.perf_counter() - began
    assert found[STANDARD] > 0


def test_no_package_is_in_two_libraries() -> None:
    packages = [package for own in LIBRARIES.values() for package in own]
    assert len(set(packages)) == len(packages)


def step(name: str, cpu_s: float, **found: float) -> dict[str, Any]:
    return {
        "name": name,
        "main": True,
        "cpu_s": cpu_s,
        "wall_s": cpu_s,
        "foreign_s": 0.0,
        "stolen_s": 0.0,
        "memory_bytes": 1 << 20,
        "parts": found,
    }


@pytest.fixture
def bundle() -> dict[str, Any]:
    runs = [
        {
            "round": number,
            "size": "small",
            "case": "one",
            "contender": "tallystick-best",
            "steps": [step("plan", 1.0 + number, Python=number), step("stage", 9.0, **more)],
            "ok": number < 4,
            "problems": [] if number < 4 else ["a row is missing"],
        }
        for number, more in enumerate(
            ({"workers": 3.0}, {"workers": 4.0, "other": 1.0}, {"workers": 5.0}, {"workers": 99.0}),
            1,
        )
    ]
    return sealed(
        {
            "what": WHAT,
            "date": "2026-11-27",
            "machine": {
                "cores": 2,
                "cpu": "a processor",
                "memory_gb": 24,
                "commit": "0" * 40,
                "changed": False,
            },
            "settings": {"seed": 7, "rounds": 4, "records": {"small": 20_000}},
            "contenders": {"tallystick-best": {}},
            "imports": {
                "tallystick-best": {"plan": {"tallystick": 0.2, STANDARD: 0.1}, "stage": {}}
            },
            "complete": True,
            "runs": runs,
        }
    )


def test_a_part_is_the_median_of_the_good_runs_and_0_in_a_run_without_it(
    bundle: dict[str, Any],
) -> None:
    assert parts(bundle, "tallystick-best") == {
        ("plan", "Python"): 2,
        ("plan", ENDED): 1.0,
        ("stage", "workers"): 4.0,
        ("stage", ENDED): 4.0,
        ("stage", "other"): 0.0,
    }


def test_text_and_page_have_all_parts_and_what_is_loaded(
    bundle: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = text_report(bundle)
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "stage workers 4.00" in rows
    assert "tallystick 0.20" in rows
    assert "standard library 0.10" in rows
    assert "round 4, tallystick-best, case one, small: a row is missing" in text
    assert max(map(len, text.splitlines())) <= 100
    write_bundle(tmp_path / "start.json", bundle)
    assert main(tmp_path / "start.json") == 0
    assert "stage" in capsys.readouterr().out
    assert "| stage | workers | 4.00 |" in page(bundle, "start")
    assert "](start-loading.svg)" in page(bundle, "start")
