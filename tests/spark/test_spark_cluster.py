"""Jobs on a real standalone cluster whose parts are killed and frozen: the staged files are always exact.

Two workers on two addresses of the loopback interface, which Spark treats as two machines.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.flights_jobs import assert_arrow_exact, assert_frames_exact
from tallystick.format import keys
from tallystick.operations.commit import check_report, commit
from tallystick.operations.verify.run import verify
from tallystick.tables.staging import IcebergTables
from tallystick_devstack.process import wait_until
from tallystick_devstack.spark import SparkCluster
from tallystick_devstack.testing.servers import aws_environment

FILE_TIMEOUT_S = 300.0
SMALL = {"spark.executor.memory": "512m"}
# One executor of one core on each worker, all of them registered before the first task starts.
TWO = SMALL | {"spark.cores.max": "2", "spark.executor.cores": "1"}
FOUR = SMALL | {"spark.cores.max": "4", "spark.executor.cores": "1"}
ALL_THERE = {
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}
# Functions that block a task of the job. `PLACE` is a folder of the test.
BLOCK = """
import os, time
from pathlib import Path

def claimed(name):
    \"\"\"Return True in the first process that calls this, and write its process id and its executor's.\"\"\"
    daemon = os.getppid()
    executor = Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1]
    try:
        os.close(os.open(f"{PLACE}/{name}.claim", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    Path(f"{PLACE}/{name}.new").write_text(f"{os.getpid()} {executor}")
    os.rename(f"{PLACE}/{name}.new", f"{PLACE}/{name}")
    return True

def block():
    deadline = time.monotonic() + 300
    while not os.path.exists(f"{PLACE}/go"):
        assert time.monotonic() < deadline, "this task was neither killed nor released"
        time.sleep(0.02)
"""
WRITES_EXECUTOR = """
def transform(records):
    daemon = os.getppid()
    executor = Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1]
    Path(f"{PLACE}/executor-{executor}").touch()
    return flights(records)
"""
BLOCKED_AFTER_UPLOAD = """
from tallystick.engine import combine

def transform(records):
    if claimed("blocked"):
        partials = combine.PartialRows.to_ipc

        def last(self):
            # A task computes its partial rows last: its files are uploaded by then (C4).
            Path(f"{PLACE}/uploaded").touch()
            block()
            return partials(self)

        combine.PartialRows.to_ipc = last
    return flights(records)
"""
BLOCKED_BEFORE_UPLOAD = """
def transform(records):
    if claimed("blocked"):
        block()
    return flights(records)
"""
BLOCKED_WRITE = """
from tallystick.spark import frames
write_once = frames._write

def write_then_block(target, name, *more):
    files = write_once(target, name, *more)
    if name == "origins" and claimed("blocked"):
        Path(f"{PLACE}/uploaded").touch()
        block()
    return files

if __name__ == "__main__":
    # Functions of the job file are sent to the tasks by value.
    frames._write = write_then_block
"""


@pytest.fixture(scope="module")
def cluster(servers: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    started = SparkCluster(
        tmp_path_factory.mktemp("spark"),
        # Executors read the S3 settings from their worker's environment.
        env=aws_environment(servers.endpoint),
    )
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.fixture
def on_cluster(cluster: SparkCluster) -> Iterator[dict[str, Any]]:
    """Return the options to submit to the cluster. Both workers run at the start of each test."""
    cluster.start()
    yield {"master": cluster.url, **cluster.environment()}
    for process in _tree(cluster):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


def _tree(cluster: SparkCluster) -> list[psutil.Process]:
    alive = [psutil.Process(process.pid) for process in cluster.processes if process.alive]
    return [child for process in alive for child in process.children(recursive=True)]


def wrap_transform(lake: Any, lines: str) -> None:
    """Change the transform of an Arrow job to one that may block its task."""
    lake.change_transform(f"PLACE = {str(lake.folder)!r}\n{BLOCK}{lines}")


def wait_for_file(lake: Any, name: str, driver: Any) -> Path:
    """Wait for a file that a task writes. If the driver ends before, fail with its last lines."""
    path = lake.folder / name

    def exists() -> bool:
        if not path.exists() and driver.process.poll() is not None:
            raise AssertionError(f"the driver ended: {driver.output.read_text()[-3000:]}")
        return bool(path.exists())

    wait_until(exists, deadline_s=FILE_TIMEOUT_S, what=f"the task's file {name}")
    return Path(path)


def blocked_task(lake: Any, driver: Any) -> tuple[psutil.Process, psutil.Process]:
    """Return the blocked Python process, and its executor's JVM."""
    task, executor = map(int, wait_for_file(lake, "blocked", driver).read_text().split())
    return psutil.Process(task), psutil.Process(executor)


def worker_of(cluster: SparkCluster, executor: psutil.Process) -> int:
    """Return the number of the worker that runs an executor."""
    parents = {process.pid for process in executor.parents()}
    return next(number for number, worker in cluster.workers.items() if worker.pid in parents)


def assert_no_secret_is_shown(cluster: SparkCluster, login: dict[str, str]) -> None:
    """Check that neither Kafka's password nor the cluster's secret is in any process arguments or file of the cluster."""
    conf = Path(cluster.environment()["SPARK_CONF_DIR"], "spark-defaults.conf")
    [secret] = [
        line.split()[1]
        for line in conf.read_text().splitlines()
        if line.startswith("spark.authenticate.secret")
    ]
    secrets = [login["sasl_plain_password"], secret]
    shown = {"arguments": " ".join(" ".join(p.info["cmdline"] or ()) for p in _all())}
    shown |= {
        str(path): path.read_text(errors="replace")
        for path in cluster.state_dir.rglob("*")
        if path.is_file() and path != conf
    }
    # The search includes the executors' arguments, and what they wrote.
    assert "CoarseGrainedExecutorBackend" in shown["arguments"]
    assert any(path.endswith("/stderr") and text for path, text in shown.items())
    for place, text in shown.items():
        assert not any(secret in text for secret in secrets), place


def _all() -> Iterator[psutil.Process]:
    return psutil.process_iter(["cmdline"])


def orphans(lake: Any, plan: Any, report: Any, table: str) -> set[str]:
    """Return the uploaded files of the plan that the report does not name."""
    reported = {f.key for f in report.files if f.table == table}
    return set(lake.uploaded(plan, table)) - reported


def test_sixteen_input_splits_on_four_executors_are_staged_exactly(
    spark_lake: Any, on_cluster: dict[str, Any]
) -> None:
    spark_lake.records_per_task = 40
    wrap_transform(spark_lake, WRITES_EXECUTOR)
    plan = spark_lake.plan(0)
    ended = spark_lake.submit([plan], conf=FOUR | ALL_THERE, **on_cluster)
    report = spark_lake.report(ended)
    assert ": 16 task(s), one stage" in ended.output
    assert len(list(spark_lake.folder.glob("executor-*"))) == 4
    check_report(spark_lake.lake, plan, report)
    assert_arrow_exact(spark_lake, report, 0)


@pytest.mark.parametrize("killed", ["executor", pytest.param("machine", marks=pytest.mark.long)])
def test_files_of_a_killed_executor_or_machine_are_in_no_report(
    spark_lake: Any, cluster: SparkCluster, on_cluster: dict[str, Any], killed: str
) -> None:
    wrap_transform(spark_lake, BLOCKED_AFTER_UPLOAD)
    plan = spark_lake.plan(0)
    driver = spark_lake.start([plan], conf=TWO, **on_cluster)
    try:
        _, executor = blocked_task(spark_lake, driver)
        wait_for_file(spark_lake, "uploaded", driver)
        assert_no_secret_is_shown(cluster, spark_lake.servers.login)
        if killed == "executor":
            executor.kill()
        else:
            # The worker and all its processes, at the same time.
            cluster.workers[worker_of(cluster, executor)].kill()
        ended = driver.ended()
    finally:
        driver.kill()
    report = spark_lake.report(ended)
    check_report(spark_lake.lake, plan, report)
    assert_arrow_exact(spark_lake, report, 0)
    assert orphans(spark_lake, plan, report, "flights"), "it was killed too early"


# `make test` loses an executor of an Arrow job here, and kills tasks of a DataFrame write in test_spark_frames.py.
@pytest.mark.long
def test_an_executor_lost_during_a_dataframe_write_leaves_an_exact_report(
    frames_lake: Any, on_cluster: dict[str, Any]
) -> None:
    """Its shuffle files are lost: earlier stages run again, on the files that were landed once."""
    head, _, main = frames_lake.job.read_text().partition("if __name__")
    frames_lake.job.write_text(
        f"{head}\nPLACE = {str(frames_lake.folder)!r}\n{BLOCK}{BLOCKED_WRITE}\nif __name__{main}"
    )
    plan = frames_lake.plan(0)
    few = {"spark.sql.shuffle.partitions": "4"}
    driver = frames_lake.start([plan], conf=TWO | ALL_THERE | few, **on_cluster)
    try:
        _, executor = blocked_task(frames_lake, driver)
        wait_for_file(frames_lake, "uploaded", driver)
        executor.kill()
        ended = driver.ended()
    finally:
        driver.kill()
    report = frames_lake.report(ended)
    check_report(frames_lake.lake, plan, report)
    assert_frames_exact(frames_lake, plan, report, 0)
    assert orphans(frames_lake, plan, report, "origins"), "it was killed too early"
    landed = frames_lake.lake.store.list(keys.scratch_prefix(plan.key, report.attempt))
    assert sum(f.key.endswith(".parquet") for f in landed) == 4, "Kafka was read again"


def test_one_of_two_speculative_attempts_is_reported(
    spark_lake: Any, on_cluster: dict[str, Any]
) -> None:
    wrap_transform(spark_lake, BLOCKED_AFTER_UPLOAD)
    plan = spark_lake.plan(0)
    eager = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "100ms",
    }
    ended = spark_lake.submit([plan], conf=TWO | ALL_THERE | eager, **on_cluster)
    report = spark_lake.report(ended)
    assert (spark_lake.folder / "uploaded").exists()
    assert not (spark_lake.folder / "go").exists(), "the first attempt was released"
    check_report(spark_lake.lake, plan, report)
    assert_arrow_exact(spark_lake, report, 0)
    assert orphans(spark_lake, plan, report, "flights"), "there was no second attempt"


def test_an_executor_that_finishes_after_its_driver_changes_nothing(
    spark_lake: Any, cluster: SparkCluster, on_cluster: dict[str, Any]
) -> None:
    """Its machine is frozen, the driver killed, another attempt committed. Then it resumes and uploads its files."""
    wrap_transform(spark_lake, BLOCKED_BEFORE_UPLOAD)
    plan = spark_lake.plan(0)
    lake = spark_lake.lake
    first = spark_lake.start([plan], conf=TWO | ALL_THERE, **on_cluster)
    try:
        task, executor = blocked_task(spark_lake, first)
        attempt = next(argument for argument in first.argv if argument.startswith("try-"))
        machine = psutil.Process(cluster.workers[worker_of(cluster, executor)].pid)
        frozen = machine.children(recursive=True)
        for process in frozen:
            process.suspend()
    finally:
        first.kill()
    # The job requests an executor on each worker, and only one worker answers.
    second = spark_lake.submit([plan], conf=TWO, **on_cluster)
    report = spark_lake.report(second)
    assert_arrow_exact(spark_lake, report, 0)
    tables = IcebergTables(lake.store, lake.runtime)
    committed = commit(lake, tables, plan_key=plan.key, report_key=report.key)
    prefix = keys.attempt_prefix("flights", plan.key, attempt)
    before = {key for key in spark_lake.uploaded(plan, "flights") if key.startswith(prefix)}

    (spark_lake.folder / "go").touch()
    # First, because its executor would stop it after detecting the driver's end.
    task.resume()
    wait_until(
        lambda: any(
            key.startswith(prefix) for key in spark_lake.uploaded(plan, "flights") - before
        ),
        deadline_s=FILE_TIMEOUT_S,
        what="the upload of the task that outlived its driver",
    )
    for process in frozen:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()

    assert lake.load_existing().root.version == committed.version
    again = commit(lake, tables, plan_key=plan.key, report_key=report.key)
    assert again.already
    assert verify(lake).proven
    reports = {item.key for item in lake.store.list(keys.ATTEMPTS_PREFIX)}
    assert reports == {report.key}, "the killed attempt wrote a report"
