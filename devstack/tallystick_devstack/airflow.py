"""Runs the embedded Airflow. Each component is a child process, on the loopback interface only.

`airflow standalone` is not used: when it is stopped, it leaves orphan processes, and it opens log servers to the network.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import secrets
import sys
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tallystick.errors import RetryLater, SettingsError, TallystickError
from tallystick_devstack.airflow_api import AirflowApi
from tallystick_devstack.class_archive import submit_options
from tallystick_devstack.java import COMPILES_LITTLE, compiled_spark_home
from tallystick_devstack.private_file import write_private
from tallystick_devstack.process import (
    ChildProcess,
    base_environment,
    free_port,
    run_to_end,
    wait_for_port,
    wait_until,
)

__all__ = ["AirflowApi", "AirflowStack"]

USER = "admin"
# Two cores, and four tries per Spark task: with plain local[2], Spark does not retry a task.
LOCAL_MASTER = "local[2,4]"
# What the caller may set of the environment: to whom Airflow sends metrics and lineage.
_OBSERVED = ("AIRFLOW__METRICS__", "AIRFLOW__OPENLINEAGE__", "OTEL_")
# These keys sign logins and the tokens of tasks. The components need them, a shell does not.
_SIGNING = ("AIRFLOW__API__SECRET_KEY", "AIRFLOW__API_AUTH__JWT_SECRET")
# At INFO, it logs three lines every two seconds about its search for changed files.
_QUIET = ("airflow.dag_processing.manager=WARNING",)
# At INFO, `airflow dags trigger -o json` prints a line on standard output in front of its JSON.
_QUIET_IN_SHELLS = ("airflow.serialization.definitions.dag=WARNING",)
# Each component with its name in Airflow's health response. The api-server has none, because it sends the response.
COMPONENTS = {"api-server": None, "scheduler": "scheduler", "dag-processor": "dag_processor"}
_MIGRATE_S = 240.0
_START_S = 180.0
# For a component that already ran: it sends a heartbeat every five seconds.
_SILENT_S = 60.0
_STOP_S = 20.0


class AirflowStack:
    """Airflow's api-server, scheduler (LocalExecutor) and dag-processor on one database.

    `database` is a SQLAlchemy URI, `spark_master` the master of the connection `spark_default`. `env`: endpoints,
    connections and credentials for every component and every task. Airflow's own secrets are created once and kept in
    `state_dir` (0600).
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        dags_dir: Path,
        plugins_dir: Path,
        database: str,
        env: Mapping[str, str] | None = None,
        port: int | None = None,
        spark_master: str = LOCAL_MASTER,
    ) -> None:
        self.state_dir = state_dir.resolve()
        self.dags_dir = dags_dir.resolve()
        self.plugins_dir = plugins_dir.resolve()
        self.database = database
        self.port = port or free_port()
        self.processes: dict[str, ChildProcess] = {}
        self._env = dict(env or {})
        self._spark_master = spark_master
        self._secrets = _keep_secrets(self.state_dir)

    @property
    def url(self) -> str:
        """URL of the pages and of the REST API."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def password(self) -> str:
        """Password of the user `admin`."""
        return self._secrets["admin_password"]

    def api(self) -> AirflowApi:
        """Return a client of the REST API for the user `admin`."""
        return AirflowApi(self.url, USER, self.password)

    def environment(self) -> dict[str, str]:
        """Return the complete environment of the components."""
        home = os.environ.get("PYSPARK_PYTHON", sys.executable)
        programs = os.pathsep.join(
            [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
        )
        tasks = {
            "PATH": programs,  # spark-submit is in the folder of python
            "PYSPARK_PYTHON": home,
            "PYSPARK_DRIVER_PYTHON": home,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": COMPILES_LITTLE,
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(
                {
                    "conn_type": "spark",
                    "host": self._spark_master,
                    "extra": {"deploy-mode": "client"},
                }
            ),
        }
        # The Python of another environment has a pyspark of its own, which spark-submit finds.
        if Path(home).parent == Path(sys.executable).parent:
            tasks["SPARK_HOME"] = str(compiled_spark_home())
            tasks["SPARK_SUBMIT_OPTS"] = submit_options(self._env)
        return base_environment() | _observed() | tasks | self._env | self._settings()

    def shell_environment(self) -> dict[str, str]:
        """Return the variables with which `airflow` in a shell uses this Airflow, in addition to the shell's own."""
        settings = {name: v for name, v in self._settings().items() if name not in _SIGNING}
        return settings | {
            "AIRFLOW__LOGGING__NAMESPACE_LEVELS": " ".join(_QUIET + _QUIET_IN_SHELLS)
        }

    def start(self) -> None:
        """Migrate the database, start all components and wait until each has sent a heartbeat.

        Raises RetryLater if the database does not respond, SettingsError with the last log lines of a component if it
        sends no heartbeat. Safe to repeat: a second migration changes nothing, and a running component is not touched
        unless it has stopped sending heartbeats.
        """
        self._migrate(empty=not self._reach_database())
        since = datetime.now(UTC)
        running = [name for name, process in self.processes.items() if process.alive]
        for name in COMPONENTS:
            self.start_component(name)
        self.wait_until_healthy(since, running=running)

    def _wake(self, name: str, since: datetime) -> None:
        """Restart a component that already ran, if it sends no heartbeat.

        If a scheduler loses its database, it waits for its workers to end, and it can wait for ever for one of them
        (Airflow 3.3.2, LocalExecutor.end: three of four idle workers had ended, and the last one read from a pipe that
        had no writer any more). The process is then alive but sends no heartbeat.
        """
        try:
            self._wait_for(name, since, deadline_s=_SILENT_S)
        except SettingsError:
            self.stop_component(name, kill=True)
            self.start_component(name)

    def start_component(self, name: str) -> None:
        """Start one of COMPONENTS without waiting for it. Safe to repeat: a running component is not touched."""
        running = self.processes.get(name)
        if running is not None and running.alive:
            return
        if name == "api-server":
            wait_for_port(self.port, "Airflow's api-server")
        words = {
            "api-server": ["--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"],
            "scheduler": ["--skip-serve-logs"],  # its log server listens on every interface
            "dag-processor": [],
        }
        self.processes[name] = ChildProcess(
            [sys.executable, "-m", "airflow", name, *words[name]],
            name=f"Airflow's {name}",
            log_path=self.state_dir / f"{name}.log",
            env=self.environment(),
            cwd=self.state_dir,
        )

    def wait_until_healthy(self, since: datetime, *, running: Collection[str] = ()) -> None:
        """Wait until each component has sent a heartbeat after `since`; an older one may be of a dead process.

        `running`: the components that already ran. If one of them sends no heartbeat, it is killed and started again.
        """
        # The api-server is first, because it reports the heartbeats of the others.
        for name in COMPONENTS:
            if name in running:
                self._wake(name, since)
            self._wait_for(name, since, deadline_s=_START_S)

    def _wait_for(self, name: str, since: datetime, *, deadline_s: float) -> None:
        wait_until(
            partial(_reported, self.api(), COMPONENTS[name], since),
            deadline_s=deadline_s,
            what=f"a heartbeat of Airflow's {name}",
            process=self.processes[name],
            poll_s=0.2,
        )

    def stop_component(self, name: str, *, kill: bool = False) -> None:
        """Stop one of COMPONENTS, or kill its whole process tree. Safe to repeat: if it has ended, nothing is done."""
        process = self.processes.get(name)
        if process is not None and kill:
            process.kill()
        elif process is not None:
            process.stop(_STOP_S)

    def stop(self) -> None:
        """Stop all components, the scheduler first. Safe to repeat: a stopped component is not touched."""
        self.stop_component("scheduler")  # its tasks still report their end to the api-server
        for process in self.processes.values():
            process.request_stop()
        for name in self.processes:
            self.stop_component(name)

    @property
    def alive(self) -> bool:
        """True if all components run."""
        return len(self.processes) == len(COMPONENTS) and all(
            process.alive for process in self.processes.values()
        )

    def _reach_database(self) -> bool:
        """Return True if the database has Airflow's tables. Raises RetryLater if it does not respond."""
        from sqlalchemy import create_engine, inspect
        from sqlalchemy.exc import OperationalError

        engine = create_engine(self.database)
        try:
            return inspect(engine).has_table("alembic_version")
        except OperationalError as error:
            where = engine.url.render_as_string(hide_password=True)
            why = " ".join(str(error.orig).split())
            raise RetryLater(
                f"Airflow's metadata database does not answer at {where}: {why}.",
                hint="start the database, or correct AIRFLOW__DATABASE__SQL_ALCHEMY_CONN.",
            ) from None
        finally:
            engine.dispose()

    def _migrate(self, *, empty: bool) -> None:
        marker = self.state_dir / "migrated.json"
        done = {
            "airflow": importlib.metadata.version("apache-airflow-core"),
            "database": self.database,
        }
        # The marker file remains if the database was deleted, so check the tables too.
        if not empty and marker.exists() and json.loads(marker.read_text()) == done:
            return
        run_to_end(
            [sys.executable, "-m", "airflow", "db", "migrate"],
            name="airflow db migrate",
            log_path=self.state_dir / "migrate.log",
            env=self.environment(),
            deadline_s=_MIGRATE_S,
        )
        marker.write_text(json.dumps(done))

    def _settings(self) -> dict[str, str]:
        settings = {
            "core": {
                "dags_folder": str(self.dags_dir),
                "plugins_folder": str(self.plugins_dir),
                "executor": "LocalExecutor",
                "parallelism": "4",
                "load_examples": "False",
                "execution_api_server_url": f"{self.url}/execution/",
                "auth_manager": "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager",
                "simple_auth_manager_users": f"{USER}:admin",
                "simple_auth_manager_passwords_file": str(self.state_dir / "passwords.json"),
                "min_serialized_dag_update_interval": "1",
                "hostname_callable": "socket.gethostname",  # this sends no DNS request
            },
            "database": {"sql_alchemy_conn": self.database},
            "api": {
                "base_url": self.url,
                "host": "127.0.0.1",
                "secret_key": self._secrets["api_secret_key"],
            },
            "api_auth": {"jwt_secret": self._secrets["jwt_secret"]},
            "logging": {
                "base_log_folder": str(self.state_dir / "logs"),
                "colored_console_log": "False",
                "namespace_levels": " ".join(_QUIET),
            },
            # A changed file is parsed at the next check, after 1 to 2 s. An unchanged file is parsed every 30 s at most.
            "dag_processor": {
                "refresh_interval": "2",
                "bundle_refresh_check_interval": "1",
                "min_file_process_interval": "30",
                "parsing_processes": "1",
                "print_stats_interval": "0",
            },
            "scheduler": {
                "scheduler_idle_sleep_time": "0.3",
                # A task without heartbeats is failed after this time. It is longer than `execution_api_timeout`: the
                # api-server of a busy machine may answer a heartbeat late, and the task still runs.
                "task_instance_heartbeat_timeout": "180",
                "task_instance_heartbeat_timeout_detection_interval": "5",
                "orphaned_tasks_check_interval": "30",
                "enable_health_check": "False",
            },
            # A task fails when the api-server responds to none of five requests within the timeout, and its log is then
            # empty. With Airflow's five seconds, a busy machine fails the first task after the start.
            "workers": {"min_heartbeat_interval": "2", "execution_api_timeout": "120"},
            "usage_data_collection": {"enabled": "False"},
        }
        named = {
            f"AIRFLOW__{section.upper()}__{key.upper()}": value
            for section, values in settings.items()
            for key, value in values.items()
        }
        return named | {"AIRFLOW_HOME": str(self.state_dir), "SCARF_ANALYTICS": "false"}


def _observed() -> dict[str, str]:
    """Return the caller's settings for what Airflow sends to others: metrics and lineage."""
    return {name: value for name, value in os.environ.items() if name.startswith(_OBSERVED)}


def _reported(api: AirflowApi, part: str | None, since: datetime) -> bool:
    try:
        health = api.health()
    except TallystickError:
        return False
    if part is None:
        return bool(health["metadatabase"]["status"] == "healthy")
    beat = health[part][f"latest_{part}_heartbeat"]
    return beat is not None and datetime.fromisoformat(beat) >= since


def _keep_secrets(state_dir: Path) -> dict[str, str]:
    """Return the secrets of this Airflow, created at the first call. Safe to repeat: an existing file is only read."""
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = state_dir / "secrets.json"
    if not path.exists():
        made = {
            "admin_password": secrets.token_urlsafe(12),
            "jwt_secret": secrets.token_hex(64),
            "api_secret_key": secrets.token_hex(32),
        }
        write_private(path, json.dumps(made))
    kept: dict[str, str] = json.loads(path.read_text())
    # If Airflow's password file contains the password, Airflow neither generates nor prints one.
    write_private(state_dir / "passwords.json", json.dumps({USER: kept["admin_password"]}))
    return kept
