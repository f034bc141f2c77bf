"""The Spark home of the embedded stack: programs and jars of the installed pyspark, and no zip file of its modules."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tallystick_devstack import airflow
from tallystick_devstack.airflow import AirflowStack
from tallystick_devstack.java import COMPILES_LITTLE, compiled_spark_home, spark_home


@pytest.fixture(autouse=True)
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))


def test_it_has_the_programs_and_jars_of_the_installed_pyspark_and_no_python_modules() -> None:
    home = compiled_spark_home()
    assert sorted(path.name for path in home.iterdir()) == ["bin", "jars", "sbin"]
    for path in home.iterdir():
        assert path.resolve() == (spark_home() / path.name).resolve()
    assert (home / "bin" / "spark-submit").is_file()


def test_a_link_to_another_pyspark_is_replaced_and_an_existing_link_is_kept(tmp_path: Path) -> None:
    home = compiled_spark_home()
    kept = (home / "bin").lstat().st_ino
    (home / "jars").unlink()
    (home / "jars").symlink_to(tmp_path / "an-older-pyspark" / "jars")
    assert compiled_spark_home() == home
    assert (home / "jars").readlink() == spark_home() / "jars"
    assert (home / "bin").lstat().st_ino == kept


def test_airflow_tasks_use_it_unless_another_python_runs_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Home and class archive belong together: the archive does not match the jars of another pyspark."""
    archive = "-XX:SharedArchiveFile=spark.jsa"
    monkeypatch.setattr(airflow, "submit_options", lambda _: archive)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    stack = AirflowStack(tmp_path, dags_dir=tmp_path, plugins_dir=tmp_path, database="db://x")
    for own in (None, str(Path(sys.executable).with_name("python3"))):
        if own:
            monkeypatch.setenv("PYSPARK_PYTHON", own)
        tasks = stack.environment()
        assert (tasks["SPARK_HOME"], tasks["SPARK_SUBMIT_OPTS"]) == (
            str(compiled_spark_home()),
            archive,
        )
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/other/bin/python")
    tasks = stack.environment()
    assert "SPARK_HOME" not in tasks
    assert tasks["SPARK_SUBMIT_OPTS"] == COMPILES_LITTLE


def test_an_environment_that_cannot_be_written_uses_the_installed_pyspark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "file"))
    assert compiled_spark_home() == spark_home()
