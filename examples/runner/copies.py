"""The copies of the examples' DAG and job files that the stack's Airflow reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tallystick.errors import SettingsError


def module_of(name: str) -> str:
    """Return the name of an example's folder, DAG file and job file: with `_` where the example's name has `-`."""
    return name.replace("-", "_")


def copy_files(source: Path, project: Path, names: Sequence[str]) -> None:
    """Copy the DAG and job files of these examples, so that they may be changed and Airflow loads no others.

    Safe to repeat: the copies are overwritten. Raises SettingsError if a file is missing.
    """
    (project / "plugins").mkdir(parents=True, exist_ok=True)
    for kind in ("dags", "spark_jobs"):
        folder = project / kind / "examples"
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            file = source / kind / "examples" / f"{module_of(name)}.py"
            if not file.is_file():
                raise SettingsError(
                    f"{file} does not exist.",
                    hint="run the examples from a clone of the repository (`make example`).",
                )
            (folder / file.name).write_bytes(file.read_bytes())
