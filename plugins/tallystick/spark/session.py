"""Starts the Spark session of a job. By default it writes no secret to a file and opens no unneeded port."""

from __future__ import annotations

import os
import subprocess
import sys

import pyspark
from pyspark.sql import SparkSession

from tallystick.errors import SettingsError
from tallystick.format.plan import Plan

# These are always set. An operator tunes other settings through spark-submit.
_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    # The task's closure contains Kafka's secrets. As a broadcast, it would be written to a file on each machine.
    "spark.broadcast.UDFCompressionThreshold": str(1 << 30),
}
_DEFAULTS = {
    "spark.task.maxFailures": "4",
    "spark.driver.maxResultSize": "2g",
    "spark.ui.enabled": "false",
}
_LOCAL = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
# On a cluster, the executors' Python may get tallystick only when a task runs (--py-files).
_WARM = {"spark.python.daemon.module": "tallystick.spark.daemon"}


def stage_session(plan: Plan, *, tasks: int) -> SparkSession:
    """Start the session that stages a plan by so many tasks; raises the same errors as `start_session`."""
    return start_session(f"tallystick {plan.pipeline} {plan.interval}", is_warm=tasks > 1)


def start_session(name: str, *, is_warm: bool = False) -> SparkSession:
    """Start the session of a job that spark-submit runs, with the master that spark-submit sets.

    `is_warm`: in local mode, Python workers are copies of a process that has loaded what a reading task needs. That costs
    more than it saves if only one worker is needed.

    Raises SettingsError if the Python package and the JVM have different Spark versions, and in local mode if the workers
    would run another Python than the driver.
    """
    # SparkConf contains the settings of spark-submit only after the JVM is connected.
    pyspark.SparkContext._ensure_initialized()
    conf = pyspark.SparkConf()
    local = (conf.get("spark.master") or "").startswith("local")
    if local:
        # If it is unset, Spark starts the first python3 of PATH, which may lack the driver's libraries.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        _check_worker_python(conf.get("spark.pyspark.python") or os.environ["PYSPARK_PYTHON"])
    # Files of --py-files are on the path of a task only.
    is_warm = is_warm and local and not conf.get("spark.submit.pyFiles")
    builder = SparkSession.builder.appName(name)
    for key, value in {**_ALWAYS, **(_LOCAL if local else {})}.items():
        builder = builder.config(key, value)
    for key, value in {**_DEFAULTS, **(_WARM if is_warm else {})}.items():
        if not conf.contains(key):
            builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    check_versions(session)
    return session


def stop_session() -> None:
    """Stop the active session of this process. Safe to repeat: if there is none, it does nothing."""
    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


def check_versions(session: SparkSession) -> None:
    """Raise SettingsError if the Python package and the JVM have different Spark versions."""
    if session.version != pyspark.__version__:
        raise SettingsError(
            f"Spark of the JVM: expected {pyspark.__version__} as pyspark, found {session.version}.",
            hint="install one version of pyspark, pyspark-client and Spark; unset SPARK_HOME if it names another.",
        )


def failures_max(session: SparkSession) -> int:
    """Return how often Spark runs a task before it gives up. In local mode this is F of `local[N,F]`, or 1."""
    master = str(session.sparkContext.master)
    if not master.startswith("local") or master.startswith("local-cluster"):
        return int(session.sparkContext.getConf().get("spark.task.maxFailures", "4") or 4)
    return int(master.partition(",")[2].rstrip("]") or 1)


def _check_worker_python(executable: str) -> None:
    code = "import sys; print(sys.prefix)"
    try:
        answer = subprocess.run(
            [executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
        )
        prefix = answer.stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        raise _other_python(executable, f"does not start: {error}") from error
    if prefix != sys.prefix:
        raise _other_python(executable, f"belongs to {prefix}, the driver to {sys.prefix}")


def _other_python(executable: str, why: str) -> SettingsError:
    return SettingsError(
        f"Spark's workers would run the Python {executable!r}, which {why}.",
        hint=f"set PYSPARK_PYTHON={sys.executable} (and no spark.pyspark.python) in the environment of spark-submit.",
    )
