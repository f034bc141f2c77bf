"""Runs spark-submit in cluster mode: it hands a driver over to YARN or Kubernetes, and ends.

It gets the variables that locate the cluster and its configuration, and no credentials of the pipeline: the driver takes
those from the cluster. What executors get by `spark.executorEnv`, which has no secrets either, the driver gets, too.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tallystick.airflow.clusters.port import DriverRequest
from tallystick.airflow.clusters.rest import one_line
from tallystick.airflow.environment import own_spark_submit
from tallystick.errors import ClusterUnavailable, SettingsError

log = logging.getLogger(__name__)
# A client of YARN tries for 15 minutes to connect to a ResourceManager that does not answer.
TIMEOUT_S = 600.0
_LINES_LOGGED = 40
# Of Python's two, PYSPARK_DRIVER_PYTHON is left out: it names the Python of a driver on this machine.
_NAMES = (
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "JAVA_HOME"),
    *("HADOOP_CONF_DIR", "YARN_CONF_DIR", "HADOOP_USER_NAME", "KUBECONFIG"),
    *("KRB5_CONFIG", "KRB5CCNAME", "PYSPARK_PYTHON"),
    *("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME"),
)
_EXECUTOR_ENVIRONMENT = "spark.executorEnv."


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedSubmission:
    """How spark-submit ended: its exit code, None if it ran for too long, and its output."""

    code: int | None
    output: str

    def failed(self, master: str) -> ClusterUnavailable:
        """Return the error of a submission that started no driver."""
        lines = [line for line in self.output.splitlines() if line.strip()]
        named = [line for line in lines if "Exception" in line or "Error" in line]
        why = next(iter(named), "; ".join(lines[-3:])) or "it printed nothing"
        ended = "did not end in time" if self.code is None else f"ended with exit code {self.code}"
        return ClusterUnavailable(
            f"spark-submit to {master} {ended} and no driver was found: {one_line(why)}.",
            hint="read its output above in this log; the task retries by itself.",
        )


def spark_submit(
    binary: str,
    request: DriverRequest,
    *,
    master: str,
    job: str,
    conf: Mapping[str, str],
    worker: Mapping[str, str],
    timeout_s: float = TIMEOUT_S,
) -> EndedSubmission:
    """Hand a driver over to the cluster and wait until spark-submit has ended; `worker`: this process's environment.

    Safe to repeat: each attempt is another driver. It can fail after the cluster has the driver, so the caller looks for
    the driver before it reports a failure.
    """
    options = {**request.conf, **conf}
    words = [binary, "--master", master, "--deploy-mode", "cluster", "--name", request.name]
    words += [word for name in sorted(options) for word in ("--conf", f"{name}={options[name]}")]
    words += [job, *request.arguments]
    try:
        process = subprocess.Popen(
            words,
            env=_environment(binary, worker),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # A process group of its own, so that its JVM ends with it.
            start_new_session=True,
        )
    except (FileNotFoundError, PermissionError) as error:
        raise SettingsError(
            f"{binary!r} cannot be started: {error.strerror}.",
            hint="install tallystick[spark] with Airflow, or name a program as spark-binary in the connection.",
        ) from None
    ended = _wait(process, timeout_s)
    for line in ended.output.splitlines()[-_LINES_LOGGED:]:
        log.info("%s", line)
    return ended


def _environment(binary: str, worker: Mapping[str, str]) -> dict[str, str]:
    kept = {name: worker[name] for name in _NAMES if name in worker}
    spec = find_spec("pyspark")
    if binary == own_spark_submit() and spec is not None and spec.origin is not None:
        # Otherwise the script looks for Spark with the python3 of the PATH.
        kept.setdefault("SPARK_HOME", str(Path(spec.origin).parent))
    return kept


def _wait(process: subprocess.Popen[str], timeout_s: float) -> EndedSubmission:
    with process:
        try:
            output, _ = process.communicate(timeout=timeout_s)
            return EndedSubmission(code=process.returncode, output=output)
        except subprocess.TimeoutExpired:
            _kill_group(process)
            output, _ = process.communicate()
            return EndedSubmission(code=None, output=output)
        except BaseException:  # the task is being ended: spark-submit must not outlive it
            _kill_group(process)
            raise


def _kill_group(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def driver_variables(request: DriverRequest, prefix: str) -> dict[str, str]:
    """Return the options that set the driver's environment; `prefix`: the cluster's prefix of such options."""
    named: dict[str, str] = {
        key.removeprefix(_EXECUTOR_ENVIRONMENT): value
        for key, value in request.conf.items()
        if key.startswith(_EXECUTOR_ENVIRONMENT)
    }
    return {prefix + name: value for name, value in {**named, **request.environment}.items()}


def joined(words: Sequence[str | None]) -> str:
    """Return the words that are not empty, separated by commas, as Spark's options have lists."""
    return ",".join(word for word in words if word)
