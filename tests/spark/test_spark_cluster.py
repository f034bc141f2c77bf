"""Jobs on a real standalone cluster whose parts are killed and frozen: what is staged is exact, whatever happens.

Two workers on two addresses of the loopback interface, which Spark takes for two machines.
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

SEEN_S = 300.0
SMALL = {"spark.executor.memory": "512m"}
# One executor of one core on each worker, all of them there before the first task starts.
TWO = SMALL | {"spark.cores.max": "2", "spark.executor.cores": "1"}
FOUR = SMALL | {"spark.cores.max": "4", "spark.executor.cores": "1"}
ALL_THERE = {
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}
# What the job's functions do beside their work; `PLACE` is a folder of the test.
HOLD = """
import os, time
from pathlib import Path

def claimed(name):
    \"\"\"The first who asks leaves its process id, and its executor's: the parent of its parent.\"\"\"
    daemon = os.getppid()
    executor = Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1]
    try:
        os.close(os.open(f"{PLACE}/{name}.claim", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    Path(f"{PLACE}/{name}.new").write_text(f"{os.getpid()} {executor}")
    os.rename(f"{PLACE}/{name}.new", f"{PLACE}/{name}")
    return True

def held():
    deadline = time.monotonic() + 300
    while not os.path.exists(f"{PLACE}/go"):
        assert time.monotonic() < deadline, "nobody killed this task or let it go"
        time.sleep(0.02)
"""
NOTED = """
def transform(records):
    daemon = os.getppid()
    executor = Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1]
    Path(f"{PLACE}/executor-{executor}").touch()
    return flights(records)
"""
HELD_AFTER_UPLOAD = """
from tallystick.engine import combine

def transform(records):
    if claimed("held"):
        partials = combine.PartialRows.to_ipc

        def last(self):
            # The partial rows are the last thing that a task makes: its files are uploaded by then (C4).
            Path(f"{PLACE}/uploaded").touch()
            held()
            return partials(self)

        combine.PartialRows.to_ipc = last
    return flights(records)
"""
HELD_BEFORE_UPLOAD = """
def transform(records):
    if claimed("held"):
        held()
    return flights(records)
"""
HELD_WRITE = """
from tallystick.spark import frames
write_once = frames._write

def write_held(target, name, *more):
    files = write_once(target, name, *more)
    if name == "origins" and claimed("held"):
        Path(f"{PLACE}/uploaded").touch()
        held()
    return files

if __name__ == "__main__":
    # Functions of the job file travel to the tasks by value.
    frames._write = write_held
"""


@pytest.fixture(scope="module")
def cluster(servers: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    made = SparkCluster(
        tmp_path_factory.mktemp("spark"),
        # Executors find their own way to S3, by their worker's environment.
        env=aws_environment(servers.endpoint),
    )
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def on_cluster(cluster: SparkCluster) -> Iterator[dict[str, Any]]:
    """How to submit to the cluster; both workers are there at the begin of each test."""
    cluster.start()
    yield {"master": cluster.url, **cluster.environment()}
    for process in _tree(cluster):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


def _tree(cluster: SparkCluster) -> list[psutil.Process]:
    alive = [psutil.Process(one.pid) for one in cluster.processes if one.alive]
    return [child for one in alive for child in one.children(recursive=True)]


def beside(lake: Any, lines: str) -> None:
    """Put lines beside an Arrow job's transform, which they wrap as `flights`."""
    head, _, main = lake.job.read_text().partition("if __name__")
    head = head.replace("def transform(", "def flights(")
    lake.job.write_text(f"{head}\nPLACE = {str(lake.folder)!r}\n{HOLD}{lines}\nif __name__{main}")


def seen(lake: Any, name: str, driver: Any) -> Path:
    """Wait for a file that a task leaves; the driver's last lines are told if it ends before."""
    path = lake.folder / name

    def there() -> bool:
        if not path.exists() and driver.process.poll() is not None:
            raise AssertionError(f"the driver ended: {driver.output.read_text()[-3000:]}")
        return bool(path.exists())

    wait_until(there, deadline_s=SEEN_S, what=f"the task's file {name}")
    return Path(path)


def held_by(lake: Any, driver: Any) -> tuple[psutil.Process, psutil.Process]:
    """The Python process that is held, and its executor's JVM."""
    task, executor = map(int, seen(lake, "held", driver).read_text().split())
    return psutil.Process(task), psutil.Process(executor)


def worker_of(cluster: SparkCluster, executor: psutil.Process) -> int:
    """The number of the worker that runs an executor."""
    above = {one.pid for one in executor.parents()}
    return next(number for number, one in cluster.workers.items() if one.pid in above)


def assert_no_secret_is_shown(cluster: SparkCluster, login: dict[str, str]) -> None:
    """Neither Kafka's password nor the cluster's secret in the arguments of any process, or in what the cluster wrote."""
    conf = Path(cluster.environment()["SPARK_CONF_DIR"], "spark-defaults.conf")
    [secret] = [
        line.split()[1]
        for line in conf.read_text().splitlines()
        if line.startswith("spark.authenticate.secret")
    ]
    secrets = [login["sasl_plain_password"], secret]
    shown = {"arguments": " ".join(" ".join(one.info["cmdline"] or ()) for one in _all())}
    shown |= {
        str(path): path.read_text(errors="replace")
        for path in cluster.state_dir.rglob("*")
        if path.is_file() and path != conf
    }
    # The search is awake: it sees the executors' arguments, and what they wrote.
    assert "CoarseGrainedExecutorBackend" in shown["arguments"]
    assert any(path.endswith("/stderr") and text for path, text in shown.items())
    for place, text in shown.items():
        assert not any(one in text for one in secrets), place


def _all() -> Iterator[psutil.Process]:
    return psutil.process_iter(["cmdline"])


def orphans(lake: Any, plan: Any, report: Any, table: str) -> set[str]:
    """What was uploaded for the plan, and the report does not name."""
    reported = {f.key for f in report.files if f.table == table}
    return set(lake.uploaded(plan, table)) - reported


def test_sixteen_pieces_on_four_executors(spark_lake: Any, on_cluster: dict[str, Any]) -> None:
    spark_lake.records_per_task = 40
    beside(spark_lake, NOTED)
    plan = spark_lake.plan(0)
    ended = spark_lake.submit([plan], conf=FOUR | ALL_THERE, **on_cluster)
    report = spark_lake.report(ended)
    assert ": 16 task(s), one stage" in ended.output
    assert len(list(spark_lake.folder.glob("executor-*"))) == 4
    check_report(spark_lake.lake, plan, report)
    assert_arrow_exact(spark_lake, report, 0)


@pytest.mark.parametrize("dies", ["executor", "machine"])
def test_what_dies_after_an_upload_leaves_files_that_no_report_names(
    spark_lake: Any, cluster: SparkCluster, on_cluster: dict[str, Any], dies: str
) -> None:
    beside(spark_lake, HELD_AFTER_UPLOAD)
    plan = spark_lake.plan(0)
    driver = spark_lake.start([plan], conf=TWO, **on_cluster)
    try:
        _, executor = held_by(spark_lake, driver)
        seen(spark_lake, "uploaded", driver)
        assert_no_secret_is_shown(cluster, spark_lake.servers.login)
        if dies == "executor":
            executor.kill()
        else:
            # The worker and all that it started, at once.
            cluster.workers[worker_of(cluster, executor)].kill()
        ended = driver.ended()
    finally:
        driver.kill()
    report = spark_lake.report(ended)
    check_report(spark_lake.lake, plan, report)
    assert_arrow_exact(spark_lake, report, 0)
    assert orphans(spark_lake, plan, report, "flights"), "it was killed too early"


def test_an_executor_lost_while_a_dataframe_is_written(
    frames_lake: Any, on_cluster: dict[str, Any]
) -> None:
    """Its shuffle files are lost with it: earlier stages run again, over what was landed once."""
    head, _, main = frames_lake.job.read_text().partition("if __name__")
    frames_lake.job.write_text(
        f"{head}\nPLACE = {str(frames_lake.folder)!r}\n{HOLD}{HELD_WRITE}\nif __name__{main}"
    )
    plan = frames_lake.plan(0)
    few = {"spark.sql.shuffle.partitions": "4"}
    driver = frames_lake.start([plan], conf=TWO | ALL_THERE | few, **on_cluster)
    try:
        _, executor = held_by(frames_lake, driver)
        seen(frames_lake, "uploaded", driver)
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


def test_of_two_speculative_attempts_one_is_reported(
    spark_lake: Any, on_cluster: dict[str, Any]
) -> None:
    beside(spark_lake, HELD_AFTER_UPLOAD)
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
    assert not (spark_lake.folder / "go").exists(), "the first attempt was let go"
    check_report(spark_lake.lake, plan, report)
    assert_arrow_exact(spark_lake, report, 0)
    assert orphans(spark_lake, plan, report, "flights"), "there was no second attempt"


def test_an_executor_that_finishes_after_its_driver_died_changes_nothing(
    spark_lake: Any, cluster: SparkCluster, on_cluster: dict[str, Any]
) -> None:
    """Its machine freezes, the driver dies, another attempt is committed; then it wakes and uploads what it has."""
    beside(spark_lake, HELD_BEFORE_UPLOAD)
    plan = spark_lake.plan(0)
    lake = spark_lake.lake
    first = spark_lake.start([plan], conf=TWO | ALL_THERE, **on_cluster)
    try:
        task, executor = held_by(spark_lake, first)
        attempt = next(word for word in first.argv if word.startswith("try-"))
        machine = psutil.Process(cluster.workers[worker_of(cluster, executor)].pid)
        frozen = machine.children(recursive=True)
        for process in frozen:
            process.suspend()
    finally:
        first.kill()
    # An executor on each worker is asked for, and only one worker answers.
    second = spark_lake.submit([plan], conf=TWO, **on_cluster)
    report = spark_lake.report(second)
    assert_arrow_exact(spark_lake, report, 0)
    tables = IcebergTables(lake.store, lake.runtime)
    committed = commit(lake, tables, plan_key=plan.key, report_key=report.key)
    prefix = keys.attempt_prefix("flights", plan.key, attempt)
    before = {key for key in spark_lake.uploaded(plan, "flights") if key.startswith(prefix)}

    (spark_lake.folder / "go").touch()
    # First, as its executor would stop it when it learns of the driver's end.
    task.resume()
    wait_until(
        lambda: any(
            key.startswith(prefix) for key in spark_lake.uploaded(plan, "flights") - before
        ),
        deadline_s=SEEN_S,
        what="the upload of the task that outlived its driver",
    )
    for process in frozen:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()

    assert lake.load_existing().root.version == committed.version
    again = commit(lake, tables, plan_key=plan.key, report_key=report.key)
    assert again.already
    assert verify(lake).proven
    reports = {found.key for found in lake.store.list(keys.ATTEMPTS_PREFIX)}
    assert reports == {report.key}, "the dead reported"
