"""The time and CPU seconds of 24 hourly runs of small intervals, on an embedded stack of its own.

    python -m bench.parts.hourly [--together N] [--active N] [--hours 24] [--records 1600] [--backfill]
        [--without-spark OFFSETS_MAX] [--one-task]

Starts a stack, produces JSON records of about 400 bytes to 3 partitions, and deploys an hourly pipeline with a table of
rows and a table that counts them. Then it unpauses the DAG (`--backfill`: backfills the hours instead), waits until all
runs have succeeded, and prints one line of JSON: seconds from the unpause to the last commit, CPU seconds of the whole
stack in that time (the counters of the control group if it can create one), the number of spark-submits, and the load.
Exits with 0 only if every record is in the table exactly once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tallystick.lake import Lake
from tallystick.runtime import system_runtime
from tallystick.store.open import open_store
from tallystick.tables.reading import static_table
from tallystick_devstack.kafka_login import confluent_words
from tallystick_devstack.parts import LocalStack

REPO = Path(__file__).resolve().parents[2]
CPUACCT = Path("/sys/fs/cgroup/cpuacct")
FIRST = datetime(2015, 9, 12, tzinfo=UTC)
PARTITIONS = 3
DEADLINE_S = 3600.0

DAG_FILE = """\
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tallystick import Column, Pipeline, Table
from tallystick.airflow import replay_dag

edits = Pipeline(
    name="edits",
    topics=["edits"],
    warehouse="s3://lake/edits",
    job="spark_jobs/edits.py",
    tables=[
        Table(
            "edits",
            columns=[
                Column("page", "string"),
                Column("channel", "string"),
                Column("user", "string"),
                Column("comment", "string", required=False),
                Column("added", "long"),
                Column("is_robot", "boolean"),
            ],
            partition_by=["day(_timestamp)"],
        ),
        Table(
            "edits_per_channel",
            columns=[Column("channel", "string"), Column("edits", "long"), Column("added", "long")],
            keys=["channel"],
            combine={"edits": "sum", "added": "sum"},
        ),
    ],
)
dag = replay_dag(
    edits,
    schedule="@hourly",
    start_date=datetime(2015, 9, 12, tzinfo=UTC) if not BACKFILL else datetime(2015, 10, 1, tzinfo=UTC),
    end_date=datetime(2015, 9, 12, tzinfo=UTC) + timedelta(hours=HOURS - 1)
    if not BACKFILL
    else datetime(2015, 10, 1, tzinfo=UTC),
    spark_binary=str(Path(__file__).parents[1] / "spark-submit"),
    is_paused_upon_creation=True,
    **OPTIONS,
)
"""

JOB_FILE = """\
import pyarrow as pa

from tallystick.spark import run


def transform(records: pa.Table) -> dict[str, pa.Table]:
    counted = records.group_by("channel").aggregate([("page", "count"), ("added", "sum")])
    return {
        "edits": records,
        "edits_per_channel": counted.rename_columns(["channel", "edits", "added"]),
    }


if __name__ == "__main__":
    run(transform)
"""


def main() -> int:
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--together", type=int, help="replay_dag(stage_together=...)")
    parser.add_argument("--active", type=int, help="replay_dag(max_active_runs=...)")
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--records", type=int, default=1600, help="per hour")
    parser.add_argument("--backfill", action="store_true")
    parser.add_argument(
        "--without-spark", type=int, help="replay_dag(without_spark_offsets_max=...)"
    )
    parser.add_argument("--one-task", action="store_true", help="replay_dag(one_task=True)")
    parser.add_argument("--keep", action="store_true", help="keep the folder with all logs")
    arguments = parser.parse_args()
    with _own_cpu() as cpu_s, _folder(keep=arguments.keep) as base:
        result = _measure(arguments, base, cpu_s)
    print(json.dumps(result))
    return 0 if result["rows"] == arguments.hours * arguments.records else 1


def _measure(arguments: argparse.Namespace, base: Path, cpu_s: _Cpu) -> dict[str, object]:
    project, state = base / "project", base / "state"
    _write_project(project, arguments)
    state.mkdir(mode=0o711)
    stack = LocalStack(state, project_dir=project)
    for name, setting in stack.environment().items():
        os.environ[name] = setting
    stack.airflow._env |= {"PYTHONPATH": str(REPO / "plugins")}
    try:
        stack.start(_note)
        _produce(stack, arguments)
        api = stack.airflow.api()
        api.wait_for_dag("edits", deadline_s=120)
        time.sleep(5)  # until the processes of the start are idle
        return _timed(stack, project, arguments, cpu_s)
    finally:
        stack.stop(_note)


def _timed(
    stack: LocalStack, project: Path, arguments: argparse.Namespace, cpu_s: _Cpu
) -> dict[str, object]:
    api = stack.airflow.api()
    lake = Lake(open_store("s3://lake/edits"), system_runtime())
    loads: list[float] = []
    load_before, cpu_before, began = os.getloadavg()[0], cpu_s.used(), time.monotonic()
    if arguments.backfill:
        api.set_paused("edits", paused=False)
        api.create_backfill("edits", FIRST, FIRST + timedelta(hours=arguments.hours - 1))
    else:
        api.set_paused("edits", paused=False)
    first_s = committed = 0.0
    while True:
        time.sleep(1)
        elapsed = time.monotonic() - began
        loads.append(os.getloadavg()[0])
        snapshot = lake.load()
        entries = snapshot.whole_ledger().entries if snapshot is not None else ()
        done = sum(1 for e in entries if e.committed is not None and e.granted is None)
        if done > committed:
            committed, first_s = done, first_s or elapsed
            _note(f"{elapsed:6.0f} s: {done} committed, load {loads[-1]:.1f}")
        if done >= arguments.hours:
            break
        if elapsed > DEADLINE_S:
            raise SystemExit(f"only {done} committed after {elapsed:.0f} s")
    wall_s, cpu = elapsed, cpu_s.used() - cpu_before
    for run in api.runs("edits"):
        ended = api.wait_for_run("edits", str(run["dag_run_id"]), deadline_s=300)
        assert ended["state"] == "success", ended
    calls = (project / "calls").read_text().splitlines() if (project / "calls").exists() else []
    staged = _stage_seconds(api, "replay" if arguments.one_task else "stage")
    assert snapshot is not None
    root = lake.load_existing().root
    rows = static_table(lake.store, root.tables["edits"].metadata or "").scan().to_arrow()
    places = {(r["_kafka_partition"], r["_offset"]) for r in rows.to_pylist()}
    assert len(places) == rows.num_rows
    return {
        "together": arguments.together,
        "active": arguments.active,
        "without_spark": arguments.without_spark,
        "one_task": arguments.one_task,
        "hours": arguments.hours,
        "wall_s": round(wall_s),
        "first_s": round(first_s),
        "cpu_s": round(cpu),
        "spark_submits": len(calls),
        "plans_per_attempt": _plans_per_attempt(lake),
        "stage_task_s": staged,
        "load_before": round(load_before, 1),
        "load_mean": round(statistics.mean(loads), 1),
        "load_max": round(max(loads), 1),
        "rows": rows.num_rows,
    }


def _plans_per_attempt(lake: Lake) -> list[int]:
    reports = (listed.key for listed in lake.store.list("attempts/"))
    attempts = Counter(key.rpartition("/")[2].partition("-")[0] for key in reports)
    return sorted(attempts.values(), reverse=True)


def _stage_seconds(api: object, task: str) -> dict[str, float]:
    durations = sorted(
        float(api.task("edits", str(run["dag_run_id"]), task)["duration"] or 0)  # type: ignore[attr-defined]
        for run in api.runs("edits")  # type: ignore[attr-defined]
    )
    return {"median": round(statistics.median(durations), 1), "max": round(durations[-1], 1)}


def _write_project(project: Path, arguments: argparse.Namespace) -> None:
    for folder in ("dags", "spark_jobs"):
        (project / folder).mkdir(parents=True)
    (project / "plugins").symlink_to(REPO / "plugins")
    options = {
        name: number
        for name, number in (
            ("stage_together", arguments.together),
            ("max_active_runs", arguments.active),
            ("without_spark_offsets_max", arguments.without_spark),
            ("one_task", arguments.one_task or None),
        )
        if number is not None
    }
    head = f"HOURS = {arguments.hours}\nBACKFILL = {arguments.backfill}\nOPTIONS = {options!r}\n"
    before, imports, rest = DAG_FILE.partition("from tallystick.airflow import replay_dag\n")
    (project / "dags" / "edits.py").write_text(before + imports + head + rest)
    (project / "spark_jobs" / "edits.py").write_text(JOB_FILE)
    submit = project / "spark-submit"
    real = Path(sys.executable).with_name("spark-submit")
    submit.write_text(
        f'#!/bin/sh\necho "$@" >> {project}/calls\nPYTHONPATH={REPO}/plugins exec {real} "$@"\n'
    )
    submit.chmod(0o755)


def _produce(stack: LocalStack, arguments: argparse.Namespace) -> None:
    kafka = confluent_words(stack.kafka.client_settings())
    topic = NewTopic("edits", PARTITIONS, 1, config={"retention.ms": "-1"})
    admin = AdminClient(dict(kafka))
    for created in admin.create_topics([topic]).values():
        created.result(60)
    producer = Producer({**kafka, "enable.idempotence": True, "compression.type": "lz4"})
    step_ms = 3_600_000 // arguments.records
    first_ms = round(FIRST.timestamp() * 1000)
    for number in range(arguments.hours * arguments.records):
        hour, within = divmod(number, arguments.records)
        edit = {
            "page": f"Page {number % 977} of the encyclopedia",
            "channel": f"#{number % 41}.wikipedia",
            "user": f"user {number * 7919 % 3001}",
            "comment": f"edit {number}: " + "a comment of some length, " * 8
            if number % 3
            else None,
            "added": number % 500,
            "is_robot": number % 5 == 0,
        }
        producer.produce(
            "edits",
            json.dumps(edit).encode(),
            partition=number % PARTITIONS,
            timestamp=first_ms + hour * 3_600_000 + within * step_ms,
        )
        producer.poll(0)
    # A record after the last hour, so that its end is no open question.
    assert producer.flush(120) == 0


class _Cpu:
    """The CPU seconds of this process and all that it starts: of its control group, or else of its ended children."""

    def __init__(self, group: Path | None) -> None:
        self._group = group

    def used(self) -> float:
        if self._group is not None:
            return int((self._group / "cpuacct.usage").read_text()) / 1e9
        times = os.times()
        return times.user + times.system + times.children_user + times.children_system


@contextmanager
def _own_cpu() -> Iterator[_Cpu]:
    group = CPUACCT / f"bench-hourly-{os.getpid()}"
    try:
        group.mkdir()
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError as error:
        _note(f"no control group ({error}): CPU seconds only of processes that have ended")
        yield _Cpu(None)
        return
    try:
        yield _Cpu(group)
    finally:
        (CPUACCT / "cgroup.procs").write_text(str(os.getpid()))
        try:
            group.rmdir()
        except OSError:
            _note(f"{group} still has processes")


@contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    # Not in a private folder: PostgreSQL runs as another user, who must reach it.
    base = Path(tempfile.mkdtemp(prefix="tally-hourly-"))
    base.chmod(0o711)
    try:
        yield base
    finally:
        if keep:
            _note(f"kept {base}")
        else:
            shutil.rmtree(base, ignore_errors=True)


def _note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
