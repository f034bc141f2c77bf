"""The checks of what is installed: each with what it accepts and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tallystick.operations.doctor import versions
from tallystick.operations.doctor.check import State
from tallystick.operations.doctor.versions import (
    airflow_checks,
    cache_check,
    decoder_folders,
    installed,
    java_check,
    java_program,
    java_version,
    packages_check,
    pyspark_check,
    python_check,
    spark_check,
    spark_program,
    tallystick_check,
)
from tallystick.runtime.version import VERSION

SPARK_42 = """\
Welcome to
      ____              __
     / __/__  ___ _____/ /__
   /___/ .__/\\_,_/_/ /_/\\_\\   version 4.2.0
      /_/

Using Scala version 2.13.17, OpenJDK 64-Bit Server VM, 17.0.15
"""


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ((3, 10, 14), "error"),
        ((3, 11, 0), "ok"),
        ((3, 13, 9), "ok"),
        ((3, 14, 0), "error"),
    ],
)
def test_python_is_of_a_supported_version(version: tuple[int, ...], state: State) -> None:
    check = python_check(version)
    assert check.state == state
    assert ".".join(map(str, version)) in check.found


@pytest.mark.parametrize(("found", "state"), [(VERSION, "ok"), (None, "ok"), ("99.1.0", "warning")])
def test_the_code_is_the_installed_version(found: str | None, state: State) -> None:
    assert tallystick_check(found).state == state


# ---------------------------------------------------------------- packages

REQUIREMENTS = [
    "boto3<1.45,>=1.44.5",
    "pyarrow>=21",
    'tomli>=2; python_version < "3.11"',
    'pyspark==4.2.0; extra == "spark"',
    "psycopg[binary]>=3.2; extra == 'postgres'",
]


def states(versions_: Mapping[str, str]) -> dict[str, State]:
    return {one.name: one.state for one in packages_check(REQUIREMENTS, versions_.get)}


@pytest.mark.parametrize(
    ("versions_", "bad"),
    [
        ({"boto3": "1.44.9", "pyarrow": "26.0.1"}, []),
        ({"boto3": "1.44.9", "pyarrow": "26.0.1", "pyspark": "4.2.0", "psycopg": "3.3"}, []),
        ({"boto3": "1.45.0", "pyarrow": "26.0.1"}, ["boto3"]),
        ({"boto3": "1.44.9"}, ["pyarrow"]),
        ({"boto3": "1.44.9", "pyarrow": "26", "pyspark": "4.1.0"}, ["pyspark"]),
        ({"boto3": "1.44.9", "pyarrow": "20", "psycopg": "3.1"}, ["pyarrow", "psycopg"]),
    ],
)
def test_packages_fit_the_requirements(versions_: dict[str, str], bad: list[str]) -> None:
    found = states(versions_)
    assert [name for name, state in found.items() if state == "error"] == bad
    assert ("packages" in found) is not bool(bad)


def test_the_installed_packages_of_this_environment_fit() -> None:
    import importlib.metadata

    found = list(packages_check(importlib.metadata.requires("tallystick"), installed))
    assert [one.name for one in found] == ["packages"], found
    assert "boto3 1." in found[0].found


def test_without_a_distribution_the_requirements_are_not_known() -> None:
    (found,) = packages_check(None, installed)
    assert found.state == "unknown"


def test_without_the_library_that_compares_versions_nothing_is_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)
    (found,) = packages_check(REQUIREMENTS, installed)
    assert (found.state, found.name) == ("unknown", "packages")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({}, {"airflow": "info"}),
        (
            {
                "apache-airflow-core": "3.3.2",
                "apache-airflow-providers-apache-spark": "6.3.4",
            },
            {"airflow": "ok", "spark provider": "ok"},
        ),
        (
            {"apache-airflow-core": "3.2.1", "apache-airflow-providers-apache-spark": "6.3.4"},
            {"airflow": "error", "spark provider": "ok"},
        ),
        ({"apache-airflow": "3.3.0"}, {"airflow": "ok", "spark provider": "error"}),
        ({"apache-airflow-core": "3.30.0"}, {"airflow": "error", "spark provider": "error"}),
    ],
)
def test_airflow_is_of_a_supported_version_and_has_its_provider(
    found: dict[str, str], expected: dict[str, State]
) -> None:
    assert {one.name: one.state for one in airflow_checks(found.get)} == expected


@pytest.mark.parametrize(
    ("pyspark", "client", "state"),
    [
        ("4.2.0", "4.2.0", "ok"),
        ("4.2.0", None, "ok"),
        ("4.2.0", "4.1.1", "error"),
        (None, None, "info"),
        (None, "4.2.0", "info"),
    ],
)
def test_pyspark_and_its_client_are_of_one_version(
    pyspark: str | None, client: str | None, state: State
) -> None:
    assert pyspark_check(pyspark, client).state == state


# ---------------------------------------------------------------- programs


def prints(text: str) -> versions.Run:
    return lambda _: text


def fails(_: list[str]) -> str:
    raise FileNotFoundError


def hangs(argv: list[str]) -> str:
    raise subprocess.TimeoutExpired(argv, 60)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime', 17),
        ('java version "1.8.0_392"\nJava(TM) SE', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025', 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "11.0.2"', 11),
        ("no such thing", None),
    ],
)
def test_javas_version_is_read_from_its_output(text: str, version: int | None) -> None:
    assert java_version(text) == version


@pytest.mark.parametrize(
    ("program", "run", "state"),
    [
        ("/java", prints('openjdk version "17.0.15"'), "ok"),
        ("/java", prints('openjdk version "11.0.2"'), "error"),
        ("/java", prints("?"), "unknown"),
        ("/java", fails, "error"),
        ("/java", hangs, "error"),
        (None, fails, "error"),
    ],
)
def test_java_is_new_enough(program: str | None, run: versions.Run, state: State) -> None:
    assert java_check(program, run).state == state


def test_java_is_not_needed_without_pyspark() -> None:
    assert java_check(None, fails, needed=False).state == "info"


def test_java_home_is_used_before_the_path(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    assert java_program({"PATH": str(tmp_path)}) == str(java)
    assert java_program({"PATH": str(tmp_path), "JAVA_HOME": "/jdk"}) == "/jdk/bin/java"
    assert java_program({"PATH": str(tmp_path / "none")}) is None


@pytest.mark.parametrize(
    ("program", "pyspark", "run", "state"),
    [
        ("/bin/spark-submit", "4.2.0", prints(SPARK_42), "ok"),
        ("/bin/spark-submit", None, prints(SPARK_42), "ok"),
        ("/bin/spark-submit", "4.1.1", prints(SPARK_42), "error"),
        ("/bin/spark-submit", "4.2.0", prints("JAVA_HOME is not set"), "error"),
        ("/bin/spark-submit", "4.2.0", fails, "error"),
        ("/bin/spark-submit", "4.2.0", hangs, "error"),
        (None, "4.2.0", fails, "error"),
        (None, None, fails, "info"),
    ],
)
def test_spark_is_that_of_pyspark(
    program: str | None, pyspark: str | None, run: versions.Run, state: State
) -> None:
    assert spark_check(program, pyspark, run).state == state


def test_a_spark_of_another_version_is_named_with_its_place() -> None:
    found = spark_check("/opt/spark-submit", "4.1.1", prints(SPARK_42))
    assert found.found == "expected Spark 4.1.1 as pyspark, found 4.2.0 at /opt/spark-submit"
    assert "SPARK_HOME" in found.fix


def test_the_spark_submit_of_this_python_is_used_unless_a_connection_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("spark-submit", "spark3-submit"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    environ = {"PATH": str(tmp_path)}
    assert spark_program(environ, "spark3-submit") == str(tmp_path / "spark3-submit")
    assert spark_program(environ, "spark2-submit") is None
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "python"))
    assert spark_program(environ) == str(tmp_path / "spark-submit")
    assert spark_program({"PATH": "/none"}) is None
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert spark_program({"PATH": "/none"}) == str(tmp_path / "spark-submit")


def test_a_program_is_run_to_its_end() -> None:
    text = versions.run_program(
        [sys.executable, "-c", "import sys; print(1); print(2, file=sys.stderr)"]
    )
    assert text.split() == ["1", "2"]


# ---------------------------------------------------------------- the cache


def closed(folder: Path) -> bool:
    return "closed" in folder.parts


@pytest.mark.parametrize(
    ("folders", "state"),
    [
        (["open"], "ok"),
        (["closed", "open"], "ok"),
        (["closed", "open/new"], "ok"),
        (["closed"], "warning"),
        (["closed/new", "closed"], "warning"),
    ],
)
def test_the_cache_needs_one_writable_folder(
    folders: list[str], state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("open", "closed"):
        (tmp_path / name).mkdir()
    # Root may write everywhere, so the modes are not asked.
    monkeypatch.setattr(versions.os, "access", lambda path, _: not closed(Path(path)))
    found = cache_check([tmp_path / name for name in folders], {}, "0.68.1")
    assert found.state == state
    if state == "ok":
        assert "open" in found.found


def test_a_cache_that_is_a_file_is_not_writable(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    environ = {"NUMBA_CACHE_DIR": str(file)}
    found = cache_check(decoder_folders(environ), environ, "0.68.1")
    assert (found.state, found.found) == ("warning", f"NUMBA_CACHE_DIR {file} is not writable")


def test_the_cache_is_next_to_the_code_or_in_the_users_cache() -> None:
    first, second = decoder_folders({"HOME": "/home/me"})
    assert first.parts[-3:] == ("tallystick", "kafka", "__pycache__")
    assert first.parent.is_dir()
    assert second == Path("/home/me/.cache/tallystick")
    assert decoder_folders({"XDG_CACHE_HOME": "/x"})[1] == Path("/x/tallystick")
    assert decoder_folders({"NUMBA_CACHE_DIR": "/c"}) == [Path("/c")]


def test_without_numba_there_is_no_cache() -> None:
    assert cache_check([], {}, None).state == "info"
