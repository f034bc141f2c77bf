"""Creates the parts of a stack with matching settings, starts them in order, watches them, and stops them in reverse."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from tallystick.errors import TallystickError
from tallystick_devstack.airflow import LOCAL_MASTER, USER, AirflowStack
from tallystick_devstack.info import (
    LAKE_BUCKET,
    PARTS,
    REGISTRY,
    PartInfo,
    PartState,
    StackInfo,
    StackState,
    parts_to_start,
    read_stack,
    write_stack,
)
from tallystick_devstack.kafka import KafkaBroker
from tallystick_devstack.logins import keep_logins, keep_registry_login
from tallystick_devstack.postgres import Postgres
from tallystick_devstack.process import ChildProcess, free_port, port_is_free
from tallystick_devstack.progress import Report
from tallystick_devstack.registry import SchemaRegistryServer
from tallystick_devstack.s3 import S3Server
from tallystick_devstack.spark import SparkCluster


class StackPart(Protocol):
    """The interface of each server of a stack."""

    @property
    def alive(self) -> bool: ...

    def start(self) -> object: ...

    def stop(self) -> None: ...


class LocalStack:
    """The parts of one state folder, started in order and stopped in reverse order. One process owns them.

    `project_dir` contains dags/ and plugins/. The variables TALLYSTICK_* of this process are passed to Airflow's tasks.
    """

    def __init__(
        self, state_dir: Path, *, project_dir: Path, parts: Collection[str] = PARTS
    ) -> None:
        self.state_dir = state_dir.resolve()
        self._parts = parts_to_start(parts)
        self._project_dir = project_dir.resolve()
        self._restarts = dict.fromkeys(self._parts, 0)
        self._state: dict[str, PartState] = dict.fromkeys(self._parts, "stopped")
        self._ports = self._choose_ports()
        self._logins = keep_logins(self.state_dir)
        self.kafka = KafkaBroker(
            self.state_dir / "kafka", port=self._ports["kafka"], login=self._logins.kafka
        )
        self.s3 = S3Server(
            self.state_dir / "s3",
            port=self._ports["s3"],
            secret_key=self._logins.s3_secret_key,
        )
        self.postgres = Postgres(self.state_dir / "postgres")
        self.registry = self._registry() if REGISTRY in self._parts else None
        self.spark = SparkCluster(
            self.state_dir / "spark",
            # Executors upload files themselves and need the S3 settings. They get the Kafka settings with each task.
            env=_handed_on("TALLYSTICK_S3_") | self.s3.environment(),
            port=self._ports["spark"],
        )
        self.airflow = AirflowStack(
            self.state_dir / "airflow",
            dags_dir=self._project_dir / "dags",
            plugins_dir=self._project_dir / "plugins",
            database=self.postgres.uri("airflow"),
            env=_handed_on() | self.environment(),
            port=self._ports["airflow"],
            spark_master=self.spark.url if "spark" in self._parts else LOCAL_MASTER,
        )
        servers: dict[str, StackPart] = {
            "kafka": self.kafka,
            "s3": self.s3,
            "postgres": self.postgres,
            "spark": self.spark,
            "airflow": self.airflow,
        }
        if self.registry is not None:
            servers[REGISTRY] = self.registry
        self._servers = {name: servers[name] for name in self._parts}

    def _registry(self) -> SchemaRegistryServer:
        folder = self.state_dir / REGISTRY
        login = keep_registry_login(folder)
        return SchemaRegistryServer(folder, port=self._ports[REGISTRY], login=login)

    def environment(self) -> dict[str, str]:
        """Return the variables that a process needs to use this stack."""
        variables: dict[str, str] = {}
        if "s3" in self._parts:
            variables |= self.s3.environment()
        if "kafka" in self._parts:
            settings = self._logins.kafka.settings(f"127.0.0.1:{self._ports['kafka']}")
            variables["TALLYSTICK_KAFKA_DEFAULT"] = json.dumps(settings)
        if self.registry is not None:
            variables["TALLYSTICK_REGISTRY_DEFAULT"] = json.dumps(self.registry.client_settings())
        if "spark" in self._parts:
            variables |= self.spark.environment()
        return variables

    def start(self, report: Report) -> None:
        """Start the parts one after another. Raises SettingsError with the log of a part if it does not start.

        Raises RetryLater if a part starts but its setup fails (the bucket, the database). Safe to repeat: running parts
        are not touched, and the bucket and the database are created only if they are missing.
        """
        for name in self._servers:
            began = time.monotonic()
            self._state[name] = "starting"
            report(f"{name}: starting")
            if name == "kafka" and self.kafka.jars_missing:
                report(
                    "kafka: downloading its jars from Maven Central first, 43 MB, once per machine"
                )
            if self.registry is not None and name == REGISTRY and self.registry.program_missing:
                report(
                    "registry: downloading it from Maven Central first, 159 MB, once per machine"
                )
            self._start_part(name)
            report(f"{name}: up after {time.monotonic() - began:.1f} s at {self._address(name)}")
        self.describe("running")

    def stop(self, report: Report) -> None:
        """Stop the parts in reverse order. Safe to repeat: a stopped part is not touched."""
        self.describe("stopping")
        for name, server in reversed(self._servers.items()):
            if self._state[name] != "stopped":
                report(f"{name}: stopping")
            server.stop()
            self._state[name] = "stopped"
        self.describe("stopped")

    def revive(self, report: Report, restarts_max: int = 3) -> None:
        """Start dead parts again, each at most `restarts_max` times; a part that still does not start is "failed".

        If the start of one part raises a TallystickError, the other parts keep running. Safe to repeat: running parts are
        not touched.
        """
        for name, server in self._servers.items():
            state = self._state[name]
            if state == "failed" or (state == "running" and server.alive):
                continue
            # If it is alive but not "running", its server started and then its setup (bucket, database) failed.
            report(f"{name}: {'not ready' if server.alive else 'died'}, starting it again")
            self._restarts[name] += 1
            try:
                self._start_part(name)
                report(f"{name}: up again at {self._address(name)}")
            except TallystickError as error:
                report(f"{name}: {error}")
                if self._restarts[name] >= restarts_max:
                    self._state[name] = "failed"
                    report(
                        f"{name}: failed after {restarts_max} restarts; the other parts continue to run"
                    )
            # A part that did not start is tried again: until then, the stack does not run.
            self.describe("starting" if "starting" in self._state.values() else "running")

    def describe(self, state: StackState) -> None:
        """Write `stack.json`. Safe to repeat: each call replaces the file."""
        airflow = "airflow" in self._parts
        write_stack(
            StackInfo(
                state_dir=self.state_dir,
                state=state,
                supervisor_pid=os.getpid(),
                project_dir=str(self._project_dir),
                parts={name: self._part(name) for name in self._servers},
                variables=self.environment()
                | (self.airflow.shell_environment() if airflow else {}),
                airflow_url=self.airflow.url if airflow else None,
                airflow_user=USER if airflow else None,
                airflow_password=self.airflow.password if airflow else None,
            )
        )

    def _start_part(self, name: str) -> None:
        self._state[name] = "starting"
        self.describe("starting")
        self._servers[name].start()
        if name == "s3":
            self.s3.create_bucket(LAKE_BUCKET)
        if name == "postgres":
            self.postgres.create_database("airflow")
        self._state[name] = "running"
        self.describe("starting")

    def _choose_ports(self) -> dict[str, int]:
        """Return a port per part, the previous one if it is free, so that bookmarks and open shells still work."""
        before = read_stack(self.state_dir)
        ports: dict[str, int] = {}
        for name in ("kafka", "s3", REGISTRY, "spark", "airflow"):
            old = before.parts[name].port if before is not None and name in before.parts else None
            ports[name] = old if old is not None and port_is_free(old) else free_port()
        return ports

    def _address(self, name: str) -> str:
        return {
            "kafka": f"127.0.0.1:{self._ports['kafka']}",
            "s3": self.s3.endpoint,
            REGISTRY: self.registry.url if self.registry is not None else "",
            "postgres": str(self.postgres.socket_dir),
            "spark": self.spark.url,
            "airflow": self.airflow.url,
        }[name]

    def logs(self) -> list[Path]:
        """Return the log files of the servers."""
        return [one.log_path for name in self._servers for one in self._processes(name)]

    def _part(self, name: str) -> PartInfo:
        processes = self._processes(name)
        return PartInfo(
            name=name,
            state=self._state[name],
            address=self._address(name),
            port=self._ports.get(name),
            pids=tuple(process.pid for process in processes if process.alive),
            log_paths=tuple(str(process.log_path) for process in processes),
            restarts=self._restarts[name],
        )

    def _processes(self, name: str) -> list[ChildProcess]:
        if name == "airflow":
            return list(self.airflow.processes.values())
        if name == "spark":
            return self.spark.processes
        if name == "kafka":
            return [self.kafka.process] if self.kafka.alive else []
        if name == REGISTRY:
            assert self.registry is not None, "only parts of this stack are described"
            return [self.registry.process] if self.registry.process is not None else []
        server = self.s3 if name == "s3" else self.postgres
        return [server.process] if server.process is not None else []


def _handed_on(prefix: str = "TALLYSTICK_") -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(prefix)}
