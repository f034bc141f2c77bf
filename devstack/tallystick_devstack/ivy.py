"""Downloads artefacts from Maven Central with the Ivy inside pyspark, each once per machine."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from tallystick.errors import SettingsError
from tallystick_devstack.java import find_java
from tallystick_devstack.process import run_to_end

_DOWNLOAD_S = 600.0
_STALE_S = 3600.0


def cache_folder() -> Path:
    """Return the folder that keeps downloads between runs, below XDG_CACHE_HOME or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tallystick"


def fetch_once(folder: Path, fetch: Callable[[Path, Path], Path]) -> Path:
    """Create `folder` if it does not exist; return it. `fetch(scratch, log)` returns the complete folder in `scratch`.

    Safe to repeat: a folder that exists is complete, because it appears by one rename after the download. If another
    process was faster, this one deletes its own copy.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep_interrupted(folder)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.tmp-", dir=folder.parent) as name:
        # The log is next to the folder, because the scratch folder is deleted at the end.
        complete = fetch(Path(name), folder.with_name(f"{folder.name}.download.log"))
        try:
            complete.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    return folder


def _sweep_interrupted(folder: Path) -> None:
    # A killed download leaves its scratch folder. A running download never takes as long as an hour.
    for left in folder.parent.glob(f"{folder.name}.tmp-*"):
        if time.time() - left.stat().st_mtime > _STALE_S:
            shutil.rmtree(left, ignore_errors=True)


def retrieve(
    dependencies: str, folder: Path, *, types: tuple[str, ...], what: str, log_path: Path
) -> None:
    """Download what the XML `dependencies` names, of these types, to `folder`; `what` names it in errors.

    Raises SettingsError with the end of Ivy's log if it fails. Safe to repeat: Ivy overwrites the files.
    """
    scratch = folder.parent
    (scratch / "ivy.xml").write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="tallystick" module="embedded"/>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
    (scratch / "settings.xml").write_text(
        '<ivysettings><settings defaultResolver="central"/><resolvers>'
        '<ibiblio name="central" m2compatible="true"/></resolvers></ivysettings>'
    )
    words: list[str | Path] = [
        find_java(),
        "-jar",
        _ivy_jar(),
        "-settings",
        scratch / "settings.xml",
        "-cache",
        scratch / "cache",
    ]
    words += ["-ivy", scratch / "ivy.xml", "-types", *types]
    words += ["-retrieve", folder / "[artifact]-[revision](-[classifier]).[ext]"]
    try:
        run_to_end(
            words,
            name=f"the download of {what} from Maven Central",
            log_path=log_path,
            deadline_s=_DOWNLOAD_S,
        )
    except SettingsError as error:
        raise SettingsError(
            error.message,
            hint=f"check network and proxy of this machine ({log_path} has the whole log), then try again.",
        ) from error


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SettingsError(
            "pyspark, whose Ivy fetches the servers of the stack, is not installed.",
            hint="install tallystick-devstack.",
        )
    jars = sorted((Path(spec.origin).parent / "jars").glob("ivy-2*.jar"))
    if not jars:
        raise SettingsError(
            "pyspark's folder contains no Ivy.", hint="reinstall pyspark as uv.lock pins it."
        )
    return jars[-1]
