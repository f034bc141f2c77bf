"""Finds Java and Spark for the embedded stack, and defines common JVM flags."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from tallystick.errors import SettingsError

# Flags for less compilation and a serial heap. Jobs of seconds need 40 % less CPU time (measured: 16 s -> 9.3 s), and the
# JVM leaves the machine's few cores to other processes.
COMPILES_LITTLE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def find_java() -> Path:
    """Return the `java` of JAVA_HOME if it is set, else of PATH. Raises SettingsError if there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME ({home})" if home else "PATH"
        raise SettingsError(
            f"no java in {where}.", hint="install Java 17 or newer, or set JAVA_HOME to it."
        )
    return Path(found)


def spark_home() -> Path:
    """Return the folder of the installed pyspark, which is Spark's home. Raises SettingsError if there is none."""
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise SettingsError(
            "pyspark is not installed.",
            hint="install it with: pip install 'tallystick[spark]'.",
        )
    return Path(spec.submodule_search_locations[0])


def compiled_spark_home() -> Path:
    """Return a Spark home whose drivers and workers import the compiled files of the installed pyspark.

    Spark puts `python/lib/pyspark.zip` of its home first on Python's path, and Python compiles the modules of a zip file
    at each import: 0.4 CPU seconds for every driver and every worker. This home has links to `bin`, `jars` and `sbin`,
    and no zip file. If the links cannot be written, return the home of `spark_home`: jobs then start more slowly.

    Raises SettingsError if pyspark is not installed. Safe to repeat: an existing link is kept, and one to another pyspark
    is replaced by a rename.
    """
    installed = spark_home()
    home = Path(sys.prefix, "var", "tallystick", "spark-home")
    try:
        home.mkdir(parents=True, exist_ok=True)
        for name in ("bin", "jars", "sbin"):
            _link(home / name, installed / name)
    except OSError:  # the virtual environment belongs to another user
        return installed
    return home


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    with tempfile.TemporaryDirectory(prefix=f"{link.name}-", dir=link.parent) as scratch:
        fresh = Path(scratch, link.name)
        fresh.symlink_to(target)
        fresh.replace(link)
