"""Starts spark-submit so that it dies with its task, sees no more than it must, and never guesses a master."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException

from tallystick.airflow.environment import driver_conf, driver_environment, own_spark_submit
from tallystick.airflow.job import job_died
from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import SettingsError

_MASTER = re.compile(
    r"local(\[(\d+|\*)(,\d+)?\])?|spark://[A-Za-z0-9.,:_-]+|k8s://[A-Za-z0-9.:/_-]+|yarn"
)
_PR_SET_PDEATHSIG = 1
# As `tallystick.spark.entry` sets up the driver's log.
_WARNING = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING tallystick")


class ScrubbedSparkSubmit(SparkSubmitHook):
    """One spark-submit in client mode, with an environment of its own.

    Raises SettingsError for a connection that is not defined (Airflow's hook would fall back to YARN in silence), for a
    master it does not know, and for cluster mode: the result is read from this machine's disk.
    """

    _killed = False
    _process: subprocess.Popen[str] | None = None

    def __init__(
        self,
        *,
        conf: Mapping[str, str],
        kafka_name: str,
        kafka: KafkaSettings,
        result_file: Path,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        master = self._connection["master"]
        self._environment = driver_environment(
            os.environ, kafka_name=kafka_name, kafka=kafka, result_file=result_file, master=master
        )
        namespace = self._connection["namespace"]
        named = {"spark.kubernetes.namespace": namespace} if namespace else {}
        self._conf = driver_conf(
            {**named, **conf},
            master=master,
            driver_python=self._environment["PYSPARK_DRIVER_PYTHON"],
        )

    @property
    def _is_kubernetes(self) -> bool:
        # Airflow's hook would want its Kubernetes provider, to watch a driver's pod. Our driver is this task's child.
        return False

    @_is_kubernetes.setter
    def _is_kubernetes(self, _: bool) -> None:
        """What the master's name says is not asked."""

    def _resolve_connection(self) -> dict[str, Any]:
        try:
            connection = self.get_connection(self._conn_id)
        except AirflowNotFoundException:
            raise SettingsError(
                f"Spark connection {self._conn_id!r} is not defined.",
                hint=f"define it, e.g. AIRFLOW_CONN_{self._conn_id.upper()}="
                '\'{"conn_type": "spark", "host": "local[2]"}\', or name another as spark_conn_id.',
            ) from None
        if not self.spark_binary and "spark-binary" not in connection.extra_dejson:
            self.spark_binary = own_spark_submit()
        try:
            resolved = super()._resolve_connection()
        except (
            ValueError
        ) as error:  # the connection's extra names another binary than Airflow allows
            raise SettingsError(
                f"Spark connection {self._conn_id!r}: {error}.", hint="mend its extra."
            ) from None
        if resolved["master"] == "yarn" and connection.host != "yarn":
            # The second look at the connection failed, and Airflow's hook fell back to its default.
            raise AirflowException(
                f"Spark connection {self._conn_id!r} could not be read: try again."
            )
        if not _MASTER.fullmatch(resolved["master"]):
            raise SettingsError(
                f"Spark connection {self._conn_id!r} has the master {resolved['master']!r}.",
                hint="use local[N], spark://host:port, k8s://https://host:port or yarn.",
            )
        if resolved["deploy_mode"] not in (None, "client"):
            raise SettingsError(
                f"Spark connection {self._conn_id!r} has deploy-mode {resolved['deploy_mode']!r}.",
                hint="set it to client: the driver runs beside the task, which reads its result and can end it.",
            )
        return resolved

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Run spark-submit to its end, its output line by line in this task's log.

        Raises JobDied with the line that says most if it fails, SettingsError if there is no such program.
        """
        try:
            return super().submit(
                application,
                env=self._environment,
                # A group of its own, so that on_kill reaches the JVM, the driver and what they start.
                start_new_session=True,
                preexec_fn=_armed(os.getpid()),
                **kwargs,
            )
        except (FileNotFoundError, PermissionError) as error:
            raise SettingsError(
                f"{self._connection['spark_binary']!r} cannot be started: {error.strerror}.",
                hint="install tallystick[spark] beside Airflow, or give replay_dag a spark_binary.",
            ) from None
        except AirflowException:
            # Airflow's text is the whole command; the task's log has it already.
            code = self._submit_sp.returncode if self._submit_sp is not None else None
            raise job_died(code, map(self._masked, self._last_submit_log_lines)) from None
        finally:
            # Airflow's hook leaves the pipe open.
            if self._submit_sp is not None and self._submit_sp.stdout is not None:
                self._submit_sp.stdout.close()

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(self._without_warnings(itr))

    def _without_warnings(self, lines: Iterator[str]) -> Iterator[str]:
        """Log the driver's own warnings as warnings of this task, and yield the other lines, which are information."""
        for line in lines:
            if _WARNING.match(line):
                self.log.warning(line.rstrip())
            else:
                yield line

    def _masked(self, line: str) -> str:
        return str(self._mask_cmd([line]))

    @property
    def _submit_sp(self) -> subprocess.Popen[str] | None:
        return self._process

    @_submit_sp.setter
    def _submit_sp(self, process: subprocess.Popen[str] | None) -> None:
        # Airflow's hook sets this once the program runs: a kill may have come between the two.
        self._process = process
        if self._killed:
            self._kill_group()

    def on_kill(self) -> None:
        """Kill the whole process group, also one that is just being started.

        Safe to repeat: the dead are left alone, and what they staged is never named.
        """
        self._killed = True
        self._kill_group()
        super().on_kill()

    def _kill_group(self) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies (Linux; elsewhere nothing happens).

    A worker that is killed with -9 would otherwise leave its task, and the task's driver, running beside their own
    retry: harmless to the lake, and a waste of the machine.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _armed(parent: int) -> Callable[[], None]:
    # Loaded before the fork: a child of a process with threads must not import or lock anything.
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def arm() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died between the fork and the line above
            os._exit(1)

    return arm
