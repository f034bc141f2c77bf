"""`tally replay` as a process, with a real broker and an S3 server: killed and repeated, it commits each record once.

The expected records are those of confluent-kafka's consumer, read_committed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest

from support.brokers import TestBroker, send
from support.log_lake import at, consumed, ms
from tallystick.format import keys
from tallystick.lake import Lake
from tallystick.operations.verify import verify
from tallystick.pipeline import DEAD_LETTERS
from tallystick.runtime import system_runtime
from tallystick.store.s3 import S3Settings, S3Store
from tallystick.tables.reading import static_table
from tallystick_devstack.process import wait_until
from tallystick_devstack.testing.fault_proxy import NO_FAULT, FaultProxy, HttpFault, Seen
from tallystick_devstack.testing.servers import aws_environment, ministack

DAG = """\
from datetime import UTC, datetime

from tallystick import Column, Json, Pipeline, Table, Topic
from tallystick.airflow import replay_dag

COLUMNS = [Column("n", "long"), Column("text", "string", required=False)]
pipeline = Pipeline(
    name="events",
    topics=[Topic("{topic}", decode=Json(COLUMNS))],
    warehouse="{warehouse}",
    job="spark_jobs/events.py",
    tables=[
        Table("events", columns=COLUMNS),
        Table("sums", columns=COLUMNS[::-1], keys=["text"], combine={{"n": "sum"}}),
    ],
)
dag = replay_dag(pipeline, schedule="@daily", start_date=datetime(2013, 1, 1, tzinfo=UTC))
"""
JOB = """\
from tallystick.spark import run


def transform(records):
    sums = records.group_by("text").aggregate([("n", "sum")]).rename_columns(["text", "n"])
    return {"events": records, "sums": sums}


if __name__ == "__main__":
    run(transform)
"""
PROGRAM = """\
import atexit, json, os, sys
def note(): open(os.environ["MODULES"], "w").write(json.dumps(sorted(sys.modules)))
atexit.register(note)
from tallystick.cli import main
main()
"""
RECORDS, BROKEN, ENDS_S = 300, 5, 120
Request = Callable[[Seen], bool]


def put(part: str) -> Request:
    """Return a condition for the first PUT of a key that contains `part`."""
    return lambda seen: seen.method == "PUT" and part in seen.path


def swap(number: int) -> Callable[[], Request]:
    """Return a condition for one PUT of the root: the first creates it, the second grants, the third commits."""

    def begin() -> Request:
        roots: list[Seen] = []

        def chosen(seen: Seen) -> bool:
            if put("/root.json")(seen):
                roots.append(seen)
                return len(roots) == number
            return False

        return chosen

    return begin


MOMENTS: dict[str, tuple[Callable[[], Request], HttpFault]] = {
    "after the grant": (swap(2), HttpFault(answer="hang")),
    "after an upload": (lambda: put("/data/"), HttpFault(answer="hang")),
    "after the report": (lambda: put(f"/{keys.ATTEMPTS_PREFIX}"), HttpFault(answer="hang")),
    "before the swap": (swap(3), HttpFault(forward="never", answer="hang")),
    "after the swap, whose reply is lost": (swap(3), HttpFault(answer="hang")),
}


class Stopping(FaultProxy):
    """A proxy to S3 with a fault at the first chosen request."""

    def __init__(self, url: str, chosen: Request, fault: HttpFault) -> None:
        super().__init__(url, method=None)
        self._chosen, self._fault = chosen, fault
        self._fired: list[Seen] = []

    def choose(self, seen: Seen) -> HttpFault:
        if self._fired or not self._chosen(seen):
            return NO_FAULT
        self._fired.append(seen)
        return self._fault

    def reached(self) -> bool:
        """Return True if the request came, and the server has answered it if it was forwarded."""
        never = self._fault.forward == "never"
        return bool(self._fired) and (never or bool(self._fired[0].upstream_statuses))


@pytest.fixture(scope="module")
def s3_url() -> Iterator[str]:
    with ministack() as url:
        _session().client("s3", endpoint_url=url).create_bucket(Bucket="replays")
        yield url


def _session() -> boto3.session.Session:
    return boto3.session.Session(
        aws_access_key_id="test", aws_secret_access_key="test-secret", region_name="us-east-1"
    )


@dataclass
class Replays:
    """A topic, the files of its pipeline, and its lake."""

    broker: TestBroker
    s3_url: str
    folder: Path
    topic: str

    @property
    def lake(self) -> Lake:
        """The lake, without a proxy."""
        settings = S3Settings(endpoint_url=self.s3_url)
        store = S3Store(f"s3://replays/{self.topic}", settings=settings, session=_session())
        return Lake(store, system_runtime(), proven=True)

    def start(self, *options: str, endpoint: str | None = None) -> subprocess.Popen[str]:
        """Start `tally replay` of two days in a process of its own, as a shell does."""
        inherited = {n: v for n, v in os.environ.items() if not n.startswith(("AWS_", "TALLYST"))}
        span = ("--from", "2013-01-01", "--to", "2013-01-03")
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "replay", "dags/events.py", *span, *options],
            cwd=self.folder,
            env={
                **inherited,
                **aws_environment(endpoint or self.s3_url),
                "TALLYSTICK_KAFKA_DEFAULT": json.dumps(
                    {"bootstrap_servers": self.broker.bootstrap}
                ),
                "MODULES": str(self.folder / "modules.json"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ended(self, process: subprocess.Popen[str], code: int = 0) -> Any:
        """Wait for the end of a process with --json, and return its answer."""
        out, err = process.communicate(timeout=ENDS_S)
        assert process.returncode == code, err
        assert err == ""
        return json.loads(out)

    def modules(self) -> list[str]:
        """Return the modules that the last process had imported at its end."""
        return list(json.loads((self.folder / "modules.json").read_text()))

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the committed rows of a table."""
        lake = self.lake
        metadata = lake.load_existing().root.tables[table].metadata
        assert metadata is not None
        return list(static_table(lake.store, metadata).scan().to_arrow().to_pylist())

    def assert_equals_kafka(self) -> None:
        """Assert that each consumed record is there once, as a row or a dead letter, and that the lake is proven."""
        good: dict[tuple[int, int], int] = {}
        dead: Counter[tuple[int, int]] = Counter()
        for (_, partition, offset), (_, value) in consumed(self.broker, self.topic).items():
            try:
                good[partition, offset] = json.loads(value or b"")["n"]
            except ValueError:
                dead[partition, offset] += 1
        assert (len(good), len(dead)) == (RECORDS * 2, BROKEN * 2)
        events = [((r["_kafka_partition"], r["_offset"]), r["n"]) for r in self.rows("events")]
        assert sorted(events) == sorted(good.items())
        letters = [(r["_kafka_partition"], r["_offset"]) for r in self.rows(DEAD_LETTERS)]
        assert Counter(letters) == dead
        assert sum(row["n"] for row in self.rows("sums")) == sum(good.values())
        proof = verify(self.lake, deep=True)
        assert proof.proven, [finding for check in proof.checks for finding in check.findings]


@pytest.fixture
def replays(broker: TestBroker, s3_url: str, tmp_path: Path) -> Replays:
    """Return a pipeline over a topic of two partitions and two days, with broken values and aborted records."""
    topic = broker.topic(partitions=2, retention_ms=-1)
    plain = broker.producer()
    for partition in range(2):
        for day in range(2):
            when = {"timestamp": ms(at(day + 0.5)), "partition": partition}
            values = [
                json.dumps({"n": n, "text": f"t{n % 7}"}).encode() for n in range(RECORDS // 2)
            ]
            send(plain, topic, *values, **when)
            if not day:
                send(plain, topic, *[b"{"] * BROKEN, **when)
                aborting = broker.transactions(f"aborts-{topic}-{partition}")
                aborting.begin_transaction()
                send(aborting, topic, *values[:3], **when)
                broker.end(aborting, topic, abort=True, partition=partition)
    for name, text in (
        ("dags", DAG.format(topic=topic, warehouse=f"s3://replays/{topic}")),
        ("spark_jobs", JOB),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "events.py").write_text(text)
    return Replays(broker=broker, s3_url=s3_url, folder=tmp_path, topic=topic)


def test_a_span_is_committed_by_one_process_without_airflow_and_spark(replays: Replays) -> None:
    answer = replays.ended(replays.start("--json"))
    (one,) = answer["intervals"]
    assert (one["state"], one["rows"]) == (
        "committed",
        {"dead_letters": BROKEN * 2, "events": RECORDS * 2, "sums": 7},
    )
    assert one["totals"]["aborted"] == 6
    loaded = replays.modules()
    assert {"pyarrow", "kafka", "pyiceberg", "boto3"} <= set(loaded)
    assert [name for name in ("airflow", "pyspark", "py4j") if name in loaded] == []
    replays.assert_equals_kafka()
    again = replays.ended(replays.start("--json"))
    assert [one["state"] for one in again["intervals"]] == ["already"]
    assert again["version"] == answer["version"]
    loaded = replays.modules()
    # A span that is committed needs neither.
    assert [name for name in ("kafka", "pyiceberg") if name in loaded] == []


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_process_is_completed_exactly_once_by_a_repeat(
    replays: Replays, moment: str
) -> None:
    chosen, fault = MOMENTS[moment]
    with Stopping(replays.s3_url, chosen(), fault) as proxy:
        process = replays.start("--json", endpoint=proxy.url)
        try:
            wait_until(
                lambda: proxy.reached() or process.poll() is not None,
                deadline_s=ENDS_S,
                what=f"the moment {moment}",
            )
            assert process.poll() is None, process.communicate()[1]
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
    answer = replays.ended(replays.start("--json"))
    was_committed = moment.startswith("after the swap")
    assert [one["state"] for one in answer["intervals"]] == [
        "already" if was_committed else "committed"
    ]
    replays.assert_equals_kafka()


@pytest.mark.parametrize("name", [None, "other"])
def test_two_processes_at_the_same_time_commit_a_span_once(
    replays: Replays, name: str | None
) -> None:
    other = () if name is None else ("--run", name)
    both = [replays.start("--json"), replays.start("--json", *other)]
    ended = [process.communicate(timeout=ENDS_S) for process in both]
    codes = {process.returncode for process in both}
    assert 0 in codes, ended
    assert codes <= ({0} if name is None else {0, 75}), ended
    states = [json.loads(out)["intervals"][0]["state"] for out, _ in ended]
    assert states.count("committed") == 1, states
    replays.assert_equals_kafka()
    assert replays.ended(replays.start("--json", *other))["complete"]
