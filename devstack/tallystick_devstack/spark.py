"""An embedded Spark cluster: a standalone master and its workers, started by `spark-class`, on the loopback interface.

Executors are children of their worker and have its environment: their S3 keys come from there, as on a real cluster,
and not from the driver. Who does not know the cluster's secret can submit nothing to it (spark.authenticate).
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from tallystick_devstack.java import COMPILES_LITTLE, spark_home
from tallystick_devstack.private_file import write_private
from tallystick_devstack.process import (
    ChildProcess,
    base_environment,
    free_port,
    port_accepts,
    wait_until,
)

WORKERS = 2
CORES = 2
MEMORY_MB = 4096
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_DAEMON_MB = 256
_START_S = 120.0
# A port that is taken is an error; Spark would go on to the next one, where nobody looks for it.
_JAVA_OPTIONS = f"{COMPILES_LITTLE} -Dspark.port.maxRetries=0"
_DEFAULTS = """\
spark.authenticate                true
spark.authenticate.secret         {secret}
# Spark 4 opens port 6066 for jobs by HTTP otherwise.
spark.master.rest.enabled         false
# Two drivers at a time share the cluster; Spark's default gives all of it to the first.
spark.deploy.defaultCores         {cores}
# What executors leave behind: their logs, and every file that they were sent.
spark.worker.cleanup.enabled      true
spark.executor.extraJavaOptions   {java}
"""


class SparkCluster:
    """One master and `WORKERS` workers of `CORES` cores each; an application gets `CORES` cores unless it asks for more.

    `env` reaches the workers, and so every executor and its Python: endpoints and credentials.
    """

    def __init__(
        self, state_dir: Path, *, env: Mapping[str, str] | None = None, port: int | None = None
    ) -> None:
        self.state_dir = state_dir.resolve()
        self.port = port or free_port()
        self.master: ChildProcess | None = None
        self.workers: dict[int, ChildProcess] = {}
        self._env = dict(env or {})
        self._conf_dir = _keep_conf(self.state_dir / "conf")

    @property
    def url(self) -> str:
        """What a driver gives as its master."""
        return f"spark://127.0.0.1:{self.port}"

    @property
    def alive(self) -> bool:
        """Whether the master and every worker run."""
        return len(self.workers) == WORKERS and all(one.alive for one in self.processes)

    @property
    def processes(self) -> list[ChildProcess]:
        """The master and the workers, as many as were started."""
        return [*([self.master] if self.master is not None else []), *self.workers.values()]

    def environment(self) -> dict[str, str]:
        """Variables that let a driver submit to this cluster: its address, and where the file with the secret lies."""
        return {"SPARK_CONF_DIR": str(self._conf_dir), "SPARK_LOCAL_IP": "127.0.0.1"}

    def start(self) -> None:
        """Start master and workers and wait until the workers are registered.

        Raises SettingsError with the last log lines of one that is not. Safe to repeat: those that run are left alone.
        """
        if self.master is None or not self.master.alive:
            self.master = self._spark_class(
                "the Spark master",
                "master",
                [_MASTER, "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0"],
            )
            wait_until(
                lambda: port_accepts(self.port),
                deadline_s=_START_S,
                what="the Spark master's answer",
                process=self.master,
            )
        # Those that run on are not asked: they find a new master by themselves, and said so far up their log.
        fresh = {n: self.workers[n] for n in range(1, WORKERS + 1) if self.start_worker(n)}
        for number, worker in fresh.items():
            # The log is where a worker says so; the master's page is on a port that only its own log names.
            wait_until(
                partial(_is_registered, worker),
                deadline_s=_START_S,
                what=f"worker {number} being registered",
                process=worker,
            )

    def start_worker(self, number: int) -> bool:
        """Start one worker and do not wait; whether it had to be started. Safe to repeat: one that runs is left alone."""
        if number in self.workers and self.workers[number].alive:
            return False
        # Each on an address of its own: for Spark they are two machines (it speculates on another one only).
        host = f"127.0.0.{number + 1}"
        words = [_WORKER, "--host", host, "--webui-port", "0", "--cores", str(CORES)]
        words += ["--memory", f"{MEMORY_MB}m"]
        words += ["--work-dir", str(self.state_dir / f"work-{number}"), self.url]
        self.workers[number] = self._spark_class(
            f"Spark worker {number}", f"worker-{number}", words, host
        )
        return True

    def stop(self) -> None:
        """Stop everything, executors too. Safe to repeat: those that have ended are left alone."""
        for process in reversed(self.processes):
            process.ask_to_stop()
        for process in reversed(self.processes):
            process.stop()

    def _spark_class(
        self, name: str, log: str, words: list[str], host: str = "127.0.0.1"
    ) -> ChildProcess:
        home = spark_home()
        settings = {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": f"{_DAEMON_MB}m",
            "SPARK_DAEMON_JAVA_OPTS": _JAVA_OPTIONS,
            "PYSPARK_PYTHON": sys.executable,
        }
        return ChildProcess(
            [home / "bin" / "spark-class", *words],
            name=name,
            log_path=self.state_dir / f"{log}.log",
            env=base_environment() | self._env | self.environment() | settings,
        )


def _is_registered(worker: ChildProcess) -> bool:
    return "registered with master" in worker.tail(200)


def _keep_conf(folder: Path) -> Path:
    """The cluster's settings; its secret is made once and kept, so that a driver outlives the cluster's restart."""
    path = folder / "spark-defaults.conf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_private(
            path, _DEFAULTS.format(java=COMPILES_LITTLE, secret=secrets.token_hex(32), cores=CORES)
        )
    return folder
