"""A Spark session for a job: its settings keep secrets out of files and open no port that nobody asked for."""

from __future__ import annotations

import os
import subprocess
import sys

import pyspark
from pyspark.sql import SparkSession

from tallystick.errors import SettingsError
from tallystick.format.plan import Plan

# Ours always. What an operator may tune comes from spark-submit.
_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    # The task's closure holds Kafka's settings: it must not become a broadcast, which is a file on every machine.
    "spark.broadcast.UDFCompressionThreshold": str(1 << 30),
}
_DEFAULTS = {
    "spark.task.maxFailures": "4",
    "spark.driver.maxResultSize": "2g",
    "spark.ui.enabled": "false",
}
_LOCAL = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


def stage_session(plan: Plan) -> SparkSession:
    """Start the session in which a plan is staged; raises what `start_session` raises."""
    return start_session(f"tallystick {plan.pipeline} {plan.interval}")


def start_session(name: str) -> SparkSession:
    """Start the session of a job that spark-submit runs; the master is spark-submit's.

    Raises SettingsError where Python and JVM are of two Spark versions, and in local mode where the workers would run
    another Python than the driver.
    """
    # Before the JVM is there, SparkConf knows nothing of what spark-submit was told.
    pyspark.SparkContext._ensure_initialized()
    conf = pyspark.SparkConf()
    local = (conf.get("spark.master") or "").startswith("local")
    if local:
        # Unset, Spark starts the first python3 of PATH, which may lack every library that the driver has.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        _check_worker_python(conf.get("spark.pyspark.python") or os.environ["PYSPARK_PYTHON"])
    builder = SparkSession.builder.appName(name)
    for key, value in {**_ALWAYS, **(_LOCAL if local else {})}.items():
        builder = builder.config(key, value)
    for key, value in _DEFAULTS.items():
        if not conf.contains(key):
            builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    check_versions(session)
    return session


def stop_session() -> None:
    """Stop this process's session where there is one. Safe to repeat: without one it does nothing."""
    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


def check_versions(session: SparkSession) -> None:
    """Raise SettingsError where the Python package and the JVM are of two versions of Spark."""
    if session.version != pyspark.__version__:
        raise SettingsError(
            f"pyspark is {pyspark.__version__}, the JVM runs Spark {session.version}.",
            hint="install one version of pyspark, pyspark-client and Spark; unset SPARK_HOME if it names another.",
        )


def failures_max(session: SparkSession) -> int:
    """How often Spark runs a task before it gives up: in local mode the master says so (`local[N,F]`), default once."""
    master = str(session.sparkContext.master)
    if not master.startswith("local") or master.startswith("local-cluster"):
        return int(session.sparkContext.getConf().get("spark.task.maxFailures", "4") or 4)
    return int(master.partition(",")[2].rstrip("]") or 1)


def _check_worker_python(executable: str) -> None:
    question = "import sys; print(sys.prefix)"
    try:
        answer = subprocess.run(
            [executable, "-c", question], capture_output=True, text=True, timeout=60, check=True
        )
        prefix = answer.stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        raise _other_python(executable, f"does not start: {error}") from error
    if prefix != sys.prefix:
        raise _other_python(executable, f"belongs to {prefix}, the driver to {sys.prefix}")


def _other_python(executable: str, why: str) -> SettingsError:
    return SettingsError(
        f"Spark's workers would run the Python {executable!r}, which {why}.",
        hint=f"set PYSPARK_PYTHON={sys.executable} (and no spark.pyspark.python) where spark-submit starts.",
    )
