"""An embedded Spark cluster: a standalone master and its workers, started by `spark-class`, on the loopback interface.

Executors are children of their worker and have its environment. Their S3 keys come from it, as on a real cluster, and not
from the driver. A process without the cluster's secret cannot submit to it (spark.authenticate).
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from tallystick_devstack.java import COMPILES_LITTLE, compiled_spark_home
from tallystick_devstack.private_file import write_private
from tallystick_devstack.process import (
    ChildProcess,
    base_environment,
    free_port,
    port_accepts,
    wait_for_port,
    wait_until,
)

WORKERS = 2
CORES = 2
MEMORY_MB = 4096
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_DAEMON_MB = 256
_REST_PORT = 6066
_START_S = 120.0
# A used port is an error. By default Spark would take the next one, and no client would find it.
_JAVA_OPTIONS = f"{COMPILES_LITTLE} -Dspark.port.maxRetries=0"
_DEFAULTS = """\
spark.authenticate                true
spark.authenticate.secret         {secret}
# Spark 4 opens port 6066 on every interface otherwise, and who reaches it can run code.
spark.master.rest.enabled         {rest}
spark.master.rest.host            127.0.0.1
spark.master.rest.port            {rest_port}
# Two drivers at a time share the cluster; Spark's default gives all of it to the first.
spark.deploy.defaultCores         {cores}
# What executors leave behind: their logs, and every file that they were sent.
spark.worker.cleanup.enabled      true
spark.executor.extraJavaOptions   {java}
"""


class SparkCluster:
    """A master and `WORKERS` workers of `CORES` cores each. An application gets `CORES` cores unless it requests more.

    `env`: endpoints and credentials. The workers get it, and so every executor and its Python process gets it.
    `rest_port`: the port of the master's REST API, to which drivers can be submitted by HTTP; None: there is none.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        env: Mapping[str, str] | None = None,
        port: int | None = None,
        rest_port: int | None = None,
    ) -> None:
        self.state_dir = state_dir.resolve()
        self.port = port or free_port()
        self.master: ChildProcess | None = None
        self.workers: dict[int, ChildProcess] = {}
        self._env = dict(env or {})
        self.rest_port = rest_port
        self._conf_dir = _keep_conf(self.state_dir / "conf", rest_port)

    @property
    def url(self) -> str:
        """The master URL for a driver."""
        return f"spark://127.0.0.1:{self.port}"

    @property
    def rest_url(self) -> str:
        """The address of the master's REST API; raises ValueError if there is none."""
        if self.rest_port is None:
            raise ValueError("expected a cluster with a REST API, found one without rest_port")
        return f"http://127.0.0.1:{self.rest_port}"

    @property
    def alive(self) -> bool:
        """True if the master and every worker run."""
        return len(self.workers) == WORKERS and all(one.alive for one in self.processes)

    @property
    def processes(self) -> list[ChildProcess]:
        """The master and the workers that were started."""
        return [*([self.master] if self.master is not None else []), *self.workers.values()]

    def environment(self) -> dict[str, str]:
        """Return the variables with which a driver can submit to this cluster: its IP and the folder with the secret."""
        return {"SPARK_CONF_DIR": str(self._conf_dir), "SPARK_LOCAL_IP": "127.0.0.1"}

    def start(self) -> None:
        """Start master and workers and wait until the workers are registered.

        Raises SettingsError with the last log lines of one that is not. Safe to repeat: running ones are not touched.
        """
        if self.master is None or not self.master.alive:
            wait_for_port(self.port, "the Spark master")
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
        # Do not wait for workers that already ran: they register with a new master by themselves.
        fresh = {n: self.workers[n] for n in range(1, WORKERS + 1) if self.start_worker(n)}
        for number, worker in fresh.items():
            # A worker logs its registration. The master's page also has it, but its port is only in the master's log.
            wait_until(
                partial(_is_registered, worker),
                deadline_s=_START_S,
                what=f"the registration of worker {number}",
                process=worker,
            )

    def start_worker(self, number: int) -> bool:
        """Start one worker without waiting; return False if it already runs.

        Safe to repeat: a running worker is not touched.
        """
        if number in self.workers and self.workers[number].alive:
            return False
        # Each worker has an address of its own, so that Spark sees two machines: it speculates only on another machine.
        host = f"127.0.0.{number + 1}"
        words = [_WORKER, "--host", host, "--webui-port", "0", "--cores", str(CORES)]
        words += ["--memory", f"{MEMORY_MB}m"]
        words += ["--work-dir", str(self.state_dir / f"work-{number}"), self.url]
        self.workers[number] = self._spark_class(
            f"Spark worker {number}", f"worker-{number}", words, host
        )
        return True

    def stop(self) -> None:
        """Stop all processes, executors too. Safe to repeat: ended processes are not touched."""
        for process in reversed(self.processes):
            process.request_stop()
        for process in reversed(self.processes):
            process.stop()

    def _spark_class(
        self, name: str, log: str, words: list[str], host: str = "127.0.0.1"
    ) -> ChildProcess:
        home = compiled_spark_home()
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


def _keep_conf(folder: Path, rest_port: int | None) -> Path:
    """Return the folder of the cluster's settings. The secret is created once, so a driver survives a restart."""
    path = folder / "spark-defaults.conf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_private(
            path,
            _DEFAULTS.format(
                java=COMPILES_LITTLE,
                secret=secrets.token_hex(32),
                cores=CORES,
                rest=str(rest_port is not None).lower(),
                rest_port=rest_port or _REST_PORT,
            ),
        )
    return folder
