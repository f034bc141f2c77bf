"""What contenders prepare once per machine: Python environments, jars of Maven Central, archives of a JVM's classes.

All of it is in the cache folder of the devstack, and nothing of it is measured.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from collections.abc import Callable, Collection, Sequence
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

from bench.whole_job.contender import BenchJob, BenchPlace, BenchStep, BenchWorkspace
from tallystick.errors import SettingsError
from tallystick_devstack.class_archive import ClassArchive
from tallystick_devstack.ivy import cache_folder, fetch_once, retrieve
from tallystick_devstack.process import run_to_end

_INSTALL_S = 900.0
_WARM_UP_S = 400.0
# Iceberg's and Flink's sinks use classes of Hadoop's client; the two jars contain all that it needs.
HADOOP = tuple(
    ("org.apache.hadoop", name, "3.4.2") for name in ("hadoop-client-api", "hadoop-client-runtime")
)
SQLITE = ("org.xerial", "sqlite-jdbc", "3.50.3.0")
Module = tuple[str, str, str]
"""Group, name and version of a module of Maven Central."""


def own_python(name: str, packages: tuple[str, ...]) -> Path:
    """Return the Python of a virtual environment with these pinned packages; create it if it does not exist.

    Raises SettingsError with the end of pip's log if that fails. Safe to repeat: see `fetch_once`.
    """

    def install(scratch: Path, log: Path) -> Path:
        # The folder is renamed at the end: its scripts then name a wrong path, its Python finds its packages.
        folder = scratch / "venv"
        run_to_end(
            [sys.executable, "-m", "venv", folder],
            name=f"the virtual environment {name}",
            log_path=log,
            deadline_s=_INSTALL_S,
        )
        run_to_end(
            [folder / "bin" / "python", "-m", "pip", "install", "--no-cache-dir", *packages],
            name=f"the installation of {', '.join(packages)}",
            log_path=log,
            deadline_s=_INSTALL_S,
        )
        return folder

    return fetch_once(cache_folder() / f"bench-{name}", install) / "bin" / "python"


def engine_python() -> Path:
    """Return the Python of an environment with what `tallystick[engine]` requires, in the versions of this one.

    tallystick itself is not in it: add the folder of this tree to its path. Safe to repeat: see `own_python`.
    """
    found = packages_of("tallystick", frozenset({"engine"}))
    del found["tallystick"]
    packages = tuple(f"{name}=={version}" for name, version in sorted(found.items()))
    digest = hashlib.sha256("\n".join(packages).encode()).hexdigest()[:12]
    return own_python(f"engine-{digest}", packages)


def packages_of(name: str, extras: frozenset[str]) -> dict[str, str]:
    """Return a package of this environment and all that it requires with these extras, each with its version."""
    found: dict[str, str] = {}
    _require(name, extras, found)
    return found


def _require(name: str, extras: frozenset[str], found: dict[str, str]) -> None:
    """Add a package of this environment and all that it requires with these extras, each with its version."""
    package = distribution(name)
    found[name] = package.version
    for text in package.requires or ():
        one = Requirement(text)
        environments = [{"extra": extra} for extra in extras or {""}]
        wanted = one.marker is None or any(one.marker.evaluate(e) for e in environments)
        if wanted and (one.name not in found or one.extras):
            _require(one.name, frozenset(one.extras), found)


def site_packages(python: Path) -> Path:
    """Return the folder in which the packages of such an environment are."""
    [folder] = (python.parents[1] / "lib").glob("python3*/site-packages")
    return folder


def maven_jars(
    name: str,
    modules: Sequence[Module],
    *,
    with_dependencies: bool = True,
    without: Collection[str] = (),
) -> Path:
    """Return the folder with the jars of these modules, except those whose name without version is in `without`.

    They are downloaded once per machine. Raises SettingsError if that fails. Safe to repeat: see `fetch_once`.
    """
    alone = "" if with_dependencies else ' transitive="false"'

    def download(scratch: Path, log: Path) -> Path:
        folder = scratch / "jars"
        dependencies = "".join(
            f'<dependency org="{org}" name="{module}" rev="{version}" conf="*->default"{alone}/>'
            for org, module, version in modules
        )
        retrieve(dependencies, folder, types=("jar", "bundle"), what=name, log_path=log)
        for path in folder.glob("*.jar"):
            if artefact(path) in without:
                path.unlink()
        for _, module, version in modules:
            if not (folder / f"{module}-{version}.jar").is_file():
                raise SettingsError(
                    f"the download of {name} ended without {module}-{version}.jar.",
                    hint="check access to Maven Central.",
                )
        return folder

    return fetch_once(cache_folder() / f"bench-{name}", download)


def artefact(jar: Path) -> str:
    """Return the name of a jar without its version."""
    return re.split(r"-\d", jar.name, maxsplit=1)[0]


def archive_of(name: str, jars: Path) -> ClassArchive:
    """Return the archive of the classes that a contender's JVM loads."""
    return ClassArchive(program=name, jars=jars, folder=cache_folder() / "bench")


def archive_classes(
    archive: ClassArchive,
    workspace: BenchWorkspace,
    step: Callable[[BenchJob, BenchPlace, Sequence[str]], BenchStep],
) -> None:
    """Write the archive by a run of the small job, if it is missing; see `ClassArchive.make`.

    `step(job, place, flags)` returns the process, whose JVM gets the flags and must end by itself.
    """

    def run(flags: list[str]) -> None:
        place = BenchPlace(folder=workspace.folder / "warm-up", prefix="")
        shutil.rmtree(place.folder, ignore_errors=True)
        place.output.mkdir(parents=True)
        made = step(workspace.warm_up, place, flags)
        run_to_end(
            made.argv,
            name=f"the process whose classes are archived as {archive.program}",
            log_path=place.folder / "warm-up.log",
            deadline_s=_WARM_UP_S,
            env=made.env,
        )

    archive.make(run)
