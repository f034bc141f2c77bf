"""Starts spark-submit so that it ends with its task, gets a minimal environment, and never uses a default master."""

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
from tallystick.runtime.parent import PR_SET_PDEATHSIG

_MASTER = re.compile(
    r"local(\[(\d+|\*)(,\d+)?\])?|spark://[A-Za-z0-9.,:_-]+|k8s://[A-Za-z0-9.:/_-]+|yarn"
)
# The log format that `tallystick.spark.entry` configures in the driver.
_WARNING = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING tallystick")


class ScrubbedSparkSubmit(SparkSubmitHook):
    """One spark-submit in client mode, with an allow-listed environment. `kafka`: None if the job reads no topic.

    Raises SettingsError if the connection is not defined (Airflow's hook would silently fall back to YARN), if its master
    is not supported, and if its deploy mode is cluster: the task reads the result from this machine's disk.
    """

    _killed = False
    _process: subprocess.Popen[str] | None = None

    def __init__(
        self,
        *,
        conf: Mapping[str, str],
        result_file: Path,
        kafka_name: str = "default",
        kafka: KafkaSettings | None = None,
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
        # If True, Airflow's hook needs the Kubernetes provider to watch the driver's pod. Here it is a child process.
        return False

    @_is_kubernetes.setter
    def _is_kubernetes(self, _: bool) -> None:
        """Ignore the value that Airflow's hook derives from the master."""

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
        ) as error:  # the connection's extra names a binary that Airflow does not allow
            raise SettingsError(
                f"Spark connection {self._conn_id!r}: {error}.", hint="correct its extra."
            ) from None
        if resolved["master"] == "yarn" and connection.host != "yarn":
            # Airflow's hook could not read the connection again, and fell back to its default.
            raise AirflowException(
                f"Spark connection {self._conn_id!r} could not be read: try again."
            )
        if not _MASTER.fullmatch(resolved["master"]):
            raise SettingsError(
                f"Spark connection {self._conn_id!r}: the master {resolved['master']!r} is not supported.",
                hint="use local[N], spark://host:port, k8s://https://host:port or yarn.",
            )
        if resolved["deploy_mode"] not in (None, "client"):
            raise SettingsError(
                f"Spark connection {self._conn_id!r}: expected deploy-mode 'client', found {resolved['deploy_mode']!r}.",
                hint="set it to client: the driver runs next to the task, which reads its result and can stop it.",
            )
        return resolved

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Run spark-submit until it ends, and copy its output line by line to this task's log.

        Raises JobDied with the most informative line of the output if it fails, SettingsError if the program cannot be
        started.
        """
        try:
            return super().submit(
                application,
                env=self._environment,
                # A separate process group, so that on_kill also ends the JVM, the driver and their child processes.
                start_new_session=True,
                preexec_fn=_armed(os.getpid()),
                **kwargs,
            )
        except (FileNotFoundError, PermissionError) as error:
            raise SettingsError(
                f"{self._program!r} cannot be started: {error.strerror}.",
                hint="install tallystick[spark] with Airflow, or pass a spark_binary to replay_dag.",
            ) from None
        except AirflowException:
            # The text of Airflow's error is the whole command, which is already in the task's log.
            code = self._submit_sp.returncode if self._submit_sp is not None else None
            lines = map(self._masked, self._last_submit_log_lines)
            raise job_died(code, lines, program=Path(self._program).name) from None
        finally:
            # Airflow's hook does not close the pipe.
            if self._submit_sp is not None and self._submit_sp.stdout is not None:
                self._submit_sp.stdout.close()

    @property
    def _program(self) -> str:
        return str(self._connection["spark_binary"])

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(self._without_warnings(itr))

    def _without_warnings(self, lines: Iterator[str]) -> Iterator[str]:
        """Log tallystick's warnings in the driver as warnings of this task. Yield the other lines, logged at INFO."""
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
        # Airflow's hook sets this when the program already runs: on_kill may have been called before.
        self._process = process
        if self._killed:
            self._kill_group()

    def on_kill(self) -> None:
        """Kill the whole process group, also if spark-submit is just being started.

        Safe to repeat: a process that has ended is not signalled, and the files that it staged are never named.
        """
        self._killed = True
        self._kill_group()
        super().on_kill()

    def _kill_group(self) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


class WithoutSpark(ScrubbedSparkSubmit):
    """A job in a plain Python process of this machine, with the environment, the log and the end of a spark-submit.

    It runs on the Python that would run the driver. The Spark connection must exist, but nothing connects to its master.
    """

    @property
    def _program(self) -> str:
        return self._environment["PYSPARK_DRIVER_PYTHON"]

    def _build_spark_submit_command(self, application: str) -> list[str]:
        return [
            self._program,
            application,
            *map(str, self._application_args or ()),
            "--without-spark",
        ]


def _armed(parent: int) -> Callable[[], None]:
    # Loaded before the fork: after the fork of a process with threads, the child must not import or lock anything.
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def arm() -> None:
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent died between the fork and the line above
            os._exit(1)

    return arm
