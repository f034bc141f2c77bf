"""Checks what is installed on this machine: Python, packages, Java, Spark, and the cache of compiled decoders."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tallystick.operations.doctor.check import Area, DoctorCheck
from tallystick.runtime.loop_cache import cache_folders
from tallystick.runtime.version import VERSION

AREA = Area("versions")
PYTHON_MIN, PYTHON_END = (3, 11), (3, 14)
JAVA_MIN = 17
AIRFLOW = (3, 3)
PROGRAM_S = 60.0
_JAVA = re.compile(r'version "(\d+)(?:\.(\d+))?')
_SPARK = re.compile(r"version (\d+\.\d+\.\d+\S*)")
# Packages whose version is shown: the others are only compared with the requirements.
_SHOWN = ("pyarrow", "pyiceberg", "boto3", "kafka-python", "duckdb", "numba")

Run = Callable[[list[str]], str]
"""Runs a program and returns all of its output. Raises OSError, or TimeoutExpired of subprocess."""


def installed(name: str) -> str | None:
    """Return the version of an installed distribution; None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def run_program(argv: list[str], *, environ: Mapping[str, str] | None = None) -> str:
    """Run a program to its end and return its output, for at most a minute. `environ`: None for that of this process."""
    done = subprocess.run(
        argv,
        env=environ,
        check=False,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout + done.stderr


# ---------------------------------------------------------------- Python and packages


def python_check(version: tuple[int, ...]) -> DoctorCheck:
    """Check the version of Python."""
    shown = ".".join(map(str, version[:3]))
    if PYTHON_MIN <= version[:2] < PYTHON_END:
        return AREA.ok("python", f"Python {shown}")
    return AREA.error(
        "python", f"expected Python 3.11 to 3.13, found {shown}", "install one of these versions."
    )


def tallystick_check(found: str | None) -> DoctorCheck:
    """Check that the code of this process is the installed distribution. `found`: the distribution's version."""
    if found in (VERSION, None):
        return AREA.ok("tallystick", f"tallystick {VERSION}")
    return AREA.warning(
        "tallystick",
        f"expected the installed version {found}, found code of version {VERSION} on the path",
        "remove one of the two from this Python.",
    )


def packages_check(
    requirements: list[str] | None, version_of: Callable[[str], str | None]
) -> Iterator[DoctorCheck]:
    """Check the installed packages against tallystick's requirements (None: they are not known).

    A package of an extra may be missing; if it is there, its version must fit.
    """
    if requirements is None:
        yield AREA.unknown(
            "packages",
            "tallystick is not installed as a distribution, so its requirements are not known",
            "install it with pip or uv.",
        )
        return
    try:
        from packaging.requirements import Requirement
    except ImportError:
        yield AREA.unknown("packages", "the package `packaging` is missing", "install packaging.")
        return
    bad = 0
    for requirement in map(Requirement, requirements):
        marker, version = requirement.marker, version_of(requirement.name)
        needed = marker is None or marker.evaluate({"extra": ""})
        asked = needed or any(
            marker is not None and marker.evaluate({"extra": e}) for e in _extras(str(marker))
        )
        if not asked or (version is None and not needed):
            continue
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            bad += 1
            wanted = f"{requirement.name}{requirement.specifier}"
            yield AREA.error(
                requirement.name,
                f"expected {wanted}, found {version or 'none'}",
                f"install {wanted!r}; another package may require another version.",
            )
    if not bad:
        shown = [f"{name} {version}" for name in _SHOWN if (version := version_of(name))]
        yield AREA.ok("packages", ", ".join(shown) or "as required")


def _extras(marker: str) -> list[str]:
    return re.findall(r"extra == ['\"]([\w-]+)['\"]", marker)


def airflow_checks(version_of: Callable[[str], str | None]) -> Iterator[DoctorCheck]:
    """Check the versions of Airflow and of its Spark provider, if Airflow is installed."""
    core = version_of("apache-airflow-core") or version_of("apache-airflow")
    if core is None:
        yield AREA.info(
            "airflow",
            "Airflow is not installed in this Python",
            "install tallystick[airflow] where Airflow's tasks run; elsewhere it is not needed.",
        )
        return
    if _numbers(core)[:2] == AIRFLOW:
        yield AREA.ok("airflow", f"Airflow {core}")
    else:
        yield AREA.error("airflow", f"expected Airflow 3.3, found {core}", "install Airflow 3.3.")
    provider = version_of("apache-airflow-providers-apache-spark")
    if provider is None:
        yield AREA.error(
            "spark provider",
            "expected apache-airflow-providers-apache-spark, found none",
            "install tallystick[airflow].",
        )
    else:
        yield AREA.ok("spark provider", f"apache-airflow-providers-apache-spark {provider}")


def pyspark_check(pyspark: str | None, client: str | None) -> DoctorCheck:
    """Check that pyspark and pyspark-client have the same version: they share one folder of packages."""
    if pyspark is None:
        return AREA.info(
            "pyspark",
            "pyspark is not installed in this Python",
            "install tallystick[spark] where Spark drivers run; elsewhere it is not needed.",
        )
    if client not in (None, pyspark):
        return AREA.error(
            "pyspark",
            f"expected pyspark and pyspark-client of one version, found {pyspark} and {client}: they share a folder, so "
            "the files are a mixture",
            f"uninstall both, then install pyspark=={pyspark} and pyspark-client=={pyspark}.",
        )
    return AREA.ok("pyspark", f"pyspark {pyspark}")


# ---------------------------------------------------------------- programs


def java_program(environ: Mapping[str, str]) -> str | None:
    """Return the Java that spark-submit starts: of JAVA_HOME, otherwise on the path; None if there is none."""
    if home := environ.get("JAVA_HOME"):
        return str(Path(home) / "bin" / "java")
    return shutil.which("java", path=environ.get("PATH"))


def java_check(program: str | None, run: Run = run_program, *, needed: bool = True) -> DoctorCheck:
    """Check that Java is there and new enough for Spark. `needed`: pyspark is installed in this Python."""
    hint = f"install a Java runtime of version {JAVA_MIN} or newer, and set JAVA_HOME to it."
    if program is None:
        build = AREA.error if needed else AREA.info
        return build("java", "expected Java on the path, found none", hint)
    try:
        text = run([program, "-version"])
    except (OSError, subprocess.SubprocessError) as error:
        return AREA.error("java", f"{program} cannot be started: {type(error).__name__}", hint)
    version = java_version(text)
    if version is None:
        return AREA.unknown("java", f"{program} returned no version", hint)
    if version < JAVA_MIN:
        return AREA.error("java", f"expected Java {JAVA_MIN} or newer, found {version}", hint)
    return AREA.ok("java", f"Java {version} at {program}")


def java_version(text: str) -> int | None:
    """Return the feature release in the output of `java -version`: 17 of "17.0.15", 8 of "1.8.0_392"."""
    found = _JAVA.search(text)
    if found is None:
        return None
    first = int(found[1])
    return int(found[2]) if first == 1 and found[2] else first


def spark_program(environ: Mapping[str, str], binary: str | None = None) -> str | None:
    """Return the spark-submit that a task starts: that of its connection, of this Python, or on the path."""
    own = Path(sys.executable).with_name("spark-submit")
    if binary is None:
        return str(own) if own.exists() else shutil.which("spark-submit", path=environ.get("PATH"))
    return shutil.which(binary, path=environ.get("PATH"))


def run_spark(argv: list[str]) -> str:
    """Run spark-submit as a task does: its scripts look for Spark with the Python of the driver, which is this one."""
    own = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return run_program(argv, environ={**own, **os.environ})


def spark_check(program: str | None, pyspark: str | None, run: Run = run_spark) -> DoctorCheck:
    """Check that the Spark of spark-submit is that of pyspark: a driver mixes the two."""
    name, hint = "spark-submit", "install tallystick[spark] in the Python of Airflow's tasks."
    if program is None:
        found = "expected spark-submit next to this Python or on the path, found none"
        if pyspark is None:
            return AREA.info(name, found, hint)
        return AREA.error(name, found, hint)
    try:
        text = run([program, "--version"])
    except (OSError, subprocess.SubprocessError) as error:
        return AREA.error(name, f"{program} cannot be started: {type(error).__name__}", hint)
    found_version = _SPARK.search(text)
    if found_version is None:
        last = " ".join(text.split())[-200:]
        return AREA.error(name, f"{program} returned no version: {last or 'no output'}", hint)
    spark = found_version[1]
    if pyspark is not None and _numbers(spark) != _numbers(pyspark):
        return AREA.error(
            name,
            f"expected Spark {pyspark} as pyspark, found {spark} at {program}",
            "unset SPARK_HOME, or set it to the Spark of that version.",
        )
    return AREA.ok(name, f"Spark {spark} at {program}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


# ---------------------------------------------------------------- the cache of compiled decoders


def decoder_folders(environ: Mapping[str, str]) -> list[Path]:
    """Return the folders in which compiled decoders are cached, in their order: the first writable one is used."""
    package = Path(__file__).resolve().parents[2]
    return cache_folders(package / "kafka" / "kernels.py", environ)


def cache_check(folders: list[Path], environ: Mapping[str, str], numba: str | None) -> DoctorCheck:
    """Check that compiled decoders can be cached: otherwise each Python worker compiles them for about ten seconds."""
    if numba is None:
        return AREA.info(
            "decoder cache",
            "numba is not installed in this Python",
            "install tallystick[spark] where Spark drivers run; elsewhere it is not needed.",
        )
    for folder in folders:
        if _writable(folder):
            return AREA.ok("decoder cache", str(folder))
    shown = " or ".join(map(str, folders))
    fix = "make it writable for this user, or set NUMBA_CACHE_DIR to another folder."
    if environ.get("NUMBA_CACHE_DIR"):
        return AREA.warning("decoder cache", f"NUMBA_CACHE_DIR {shown} is not writable", fix)
    return AREA.warning(
        "decoder cache",
        f"expected a writable folder, found none of {shown}: each Spark worker compiles the decoders",
        "set NUMBA_CACHE_DIR to a writable folder.",
    )


def _writable(folder: Path) -> bool:
    """Return True if this user may create files there, or the folder itself, by the modes: nothing is created."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    return place.is_dir() and os.access(place, os.W_OK | os.X_OK)
