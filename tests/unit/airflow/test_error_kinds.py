"""Every kind of error, raised as a user meets it, and shown by each host: the task, the command line, the Spark job.

The table has one case per kind. The message contains the found and the expected value; the hint names an action.
"""

from __future__ import annotations

import fcntl
import gc
import json
import logging
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from support.fakes import stage
from support.small_lake import TOPIC, SmallLake, counting_runtime, day, days, pipeline
from tallystick import errors
from tallystick.airflow import opening, replay_dag
from tallystick.airflow.clusters.port import DriverRequest
from tallystick.airflow.clusters.standalone import StandaloneCluster
from tallystick.airflow.lines import WIDTH_MAX
from tallystick.airflow.note_text import NOTE
from tallystick.airflow.outcome import airflow_errors, raise_reported_error, with_span
from tallystick.cli import app as cli
from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.registry import RegistrySettings
from tallystick.connections.resolve import resolve
from tallystick.engine.reasons import ReasonCount, limit_error
from tallystick.errors import TallystickError
from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.format.page import Totals
from tallystick.format.schemas import FrozenSchema, schema_digest
from tallystick.kafka.planning import LogPlanner
from tallystick.lake import CONTENDED_S, Lake, Snapshot, Update
from tallystick.operations.commit import commit
from tallystick.operations.plan import PlanRequest, plan
from tallystick.operations.read_snapshot import read_snapshot
from tallystick.operations.run_request import RunDates, parse_params
from tallystick.operations.stage import to_stage
from tallystick.outputs.files import HIDDEN, FileOutput, Folder
from tallystick.outputs.kafka import KafkaOutput
from tallystick.outputs.kafka.topic import KafkaTopic
from tallystick.pipeline import Column, Pipeline
from tallystick.registry.client import RegistryClient
from tallystick.registry.resolved import check_same
from tallystick.spark.outcome import FileOutcome, error_from, error_json, exit_code
from tallystick.spark.stage import run_or_error
from tallystick.store import ETag, Outcome
from tallystick.store.memory import MemoryStore
from tallystick.store.open import open_store
from tallystick.store.tries import UNKNOWN_S
from tallystick_devstack.testing.fault_proxy import FaultProxy, Reply, Seen
from tallystick_devstack.testing.faults import Call, Fault, FaultyStore
from unit.airflow.runs import FakeRun
from unit.cli.invoke import tally, too_wide
from unit.outputs.publications import SCOPE, publication

# kafka-python reads its schemas in a way that Python 3.11 (not 3.13) calls deprecated.
pytestmark = [
    pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning"),
]
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "errors.md"
GROUPS = (errors.RetryLater, errors.Superseded, errors.ActionRequired)
# Superseded is a group with one kind: itself.
SHARED = (errors.RetryLater, errors.ActionRequired)
PYTHON_IN_TEXT = re.compile(
    r"Traceback|object at 0x|datetime\.|Path\(|<class|(?<!-)\bNone\b(?!-)|\[\]|\['|\{'|\('"
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """How to raise a kind in a lake whose first day is committed, and what its message and its hint must contain."""

    run: Callable[[SmallLake], object]
    message: tuple[str, ...]
    hint: str


def plan_declared(small: SmallLake, declared: Pipeline, interval: Interval) -> object:
    request = PlanRequest(
        pipeline=declared,
        job_source=b"job",
        request=Request(dag="small", run="run", clear=0),
        params=parse_params({}),
        dates=RunDates(data_interval=interval, run_after=interval.end),
        first=day(1),
    )
    return plan(small.lake, small.log, request)


def raised_version(snapshot: Snapshot) -> Update[None]:
    """Return an update that changes nothing but the version of the root."""
    ledger = snapshot.ledger(day(1), day(2))
    return Update(
        tables=snapshot.root.tables, topics=snapshot.root.topics, ledger=ledger, value=None
    )


def contended(small: SmallLake) -> object:
    passed = iter(range(0, 9_999, round(CONTENDED_S)))
    late = replace(small.runtime, monotonic_s=lambda: float(next(passed)))

    def overtaken(snapshot: Snapshot) -> Update[None]:
        small.lake.swap(raised_version)
        return raised_version(snapshot)

    return Lake(small.store, late, proven=True).swap(overtaken)


def with_unknown_outcome(small: SmallLake) -> object:
    def no_reply(call: Call) -> Fault | None:
        return Fault.DROP if (call.verb, call.key) == ("replace", keys.ROOT) else None

    passed = iter(range(0, 9_999, round(UNKNOWN_S)))
    late = replace(small.runtime, monotonic_s=lambda: float(next(passed)))
    return Lake(FaultyStore(small.store, no_reply), late, proven=True).swap(raised_version)


def overtaken_request(small: SmallLake) -> object:
    small.run(days(2, 3), clear=3)
    return small.plan(days(2, 4), clear=1)  # over committed rows alone it would succeed


def other_job(small: SmallLake) -> object:
    (planned,) = small.plan(days(2, 3)).intervals
    return to_stage(small.lake, [planned.plan], fingerprint="0" * 64)


def other_columns(small: SmallLake) -> object:
    declared = pipeline(small.store.uri)
    columns = [Column("n", "int"), Column("kind", "string", required=False)]
    tables = [replace(declared.tables[0], columns=columns), declared.tables[1]]
    return plan_declared(small, replace(declared, tables=tables), days(2, 3))


def all_dead(small: SmallLake) -> object:
    """Refuse an attempt, as the driver of a job does with the counts of its tasks."""
    (planned,) = small.plan(days(2, 3)).intervals
    found = small.lake.plan(planned.plan)
    assert found is not None
    reasons = {"type: field n": ReasonCount(count=12, example="type: field n: an object ...")}
    error = limit_error(found, None, Totals(dead_letters=12), reasons)
    assert error is not None
    raise error


def changed_file(small: SmallLake) -> object:
    (planned,) = small.plan(days(2, 3)).intervals
    report = stage(small.lake, small.log, planned.plan)
    small.overwrite(small.data_files("events")[-1], b"other bytes")
    return commit(small.lake, small.tables, plan_key=planned.plan, report_key=report)


class Overwrites(MemoryStore):
    """A server that ignores conditions: it writes and answers 200."""

    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        self.delete([key])
        return self.create(key, body)


def recreated(small: SmallLake) -> object:
    small.log.create(TOPIC, partitions=2)
    return small.plan(days(2, 3))


def expired(small: SmallLake) -> object:
    small.log.expire(TOPIC, 1, before=6)
    return small.plan(days(2, 3))


def rewritten(small: SmallLake) -> object:
    small.log.rewrite(TOPIC, 0, start=1)
    return small.plan(days(2, 3))


def vanished(small: SmallLake) -> object:
    small.store.delete([keys.ROOT])
    return small.plan(days(2, 3))


def onto_a_full_disk() -> None:
    """Write as a task of a job does, to a device on which every write fails as on a full disk."""
    try:
        with Path("/dev/full").open("wb", buffering=0) as file:
            file.write(b"x")
    except OSError as error:
        error.filename = "/dev/full"  # as Python sets it if the write does not use a descriptor
        raise


def error_of_a_task(work: Callable[[], None]) -> None:
    """Raise the error that the last try of a Spark task returns to its driver."""
    _, answer = run_or_error(work, 1)
    raise error_from(json.loads(answer or ""))


def newer(small: SmallLake) -> object:
    small.change(keys.ROOT, lambda root: root.update(format="tallystick.root/9"))
    return small.plan(days(2, 3))


def feed(folder: Path, **options: Any) -> Folder:
    """Return an output of files."""
    return Folder(FileOutput(name="feed", table="events", folder=str(folder)), **options)


def held_folder(_: SmallLake) -> object:
    with TemporaryDirectory() as folder:
        output = feed(Path(folder), lock_s=0.1)
        output.begin(SCOPE)
        with (Path(folder) / HIDDEN / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return output.publish(publication([{"k": "a"}]), resumed=False)


def topic(**options: Any) -> KafkaTopic:
    """Return an output that writes to a topic of an unreachable broker."""
    settings = KafkaSettings(bootstrap_servers=(f"127.0.0.1:{PORT}",), bootstrap_timeout_ms=300)
    return KafkaTopic(
        KafkaOutput(name="feed", table="events", topic="feed", **options), lambda: settings
    )


def silent_broker(_: SmallLake) -> object:
    return topic().prepare(publication([{"k": "a"}]))


def null_key(_: SmallLake) -> object:
    output = topic(key=["k"])
    return output.prepare(publication([{"k": "a"}, {"k": None}]))


def cluster() -> StandaloneCluster:
    """Return a cluster whose master does not run."""
    urls = [f"http://127.0.0.1:{PORT}"]
    return StandaloneCluster(urls, master="spark://here:7077", spark_version="4.2.0")


def registry_client(url: str = "") -> RegistryClient:
    """Return the client of a registry, by default an unreachable one."""
    settings = RegistrySettings(urls=(url or f"http://127.0.0.1:{PORT}",), timeout_s=5)
    return RegistryClient(settings, patience_s=0.0)


def ask_registry(status: int, body: bytes) -> object:
    """Request the subjects of a registry that gives this answer."""

    class Refuses(FaultProxy):
        def forward(self, seen: Seen) -> Reply:
            return Reply(status=status, headers=[], body=body)

    with Refuses(f"http://127.0.0.1:{PORT}") as proxy:
        return registry_client(proxy.url).subjects()


def registered(text: str) -> FrozenSchema:
    return FrozenSchema(
        id=7,
        subject="orders-value",
        version=1,
        kind="AVRO",
        text=text,
        references=(),
        sha256=schema_digest("AVRO", text, ()),
    )


def refused_port() -> int:
    """Return a port that refuses connections until this process ends: it is bound, and nothing listens.

    A port that is only free may be given to a server of another process meanwhile.
    """
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    port: int = held.getsockname()[1]
    held.detach()
    return port


PORT = refused_port()
SPAN = str(days(2, 3))
CASES: dict[str, Case] = {
    "not_yet": Case(
        run=lambda small: plan_declared(small, pipeline(small.store.uri), days(1, 1 + 365 * 20)),
        message=(
            "2013-01-01T00:00:00.000Z",
            "may still get records until 2032-12-27T00:00:00.000Z",
        ),
        hint="the task retries by itself",
    ),
    "store_unavailable": Case(
        run=lambda _: Lake(open_store("s3://lake/flights"), counting_runtime()).load_existing(),
        message=(f"http://127.0.0.1:{PORT}", "flights/root.json"),
        hint="AWS_ENDPOINT_URL_S3",
    ),
    "kafka_unavailable": Case(
        run=lambda _: LogPlanner(
            KafkaSettings(bootstrap_servers=(f"127.0.0.1:{PORT}",), bootstrap_timeout_ms=300)
        ).__enter__(),
        message=(f"Kafka at 127.0.0.1:{PORT} did not return its metadata", "ECONNREFUSED"),
        hint="bootstrap_servers",
    ),
    "scratch_full": Case(
        run=lambda _: error_of_a_task(onto_a_full_disk),
        message=("/dev/full on ", "No space left on device", "Nothing was committed"),
        hint="spark.local.dir",
    ),
    "swap_contended": Case(
        run=contended,
        message=("1 swaps of memory://memory/root.json", "lost to other writers"),
        hint="max_active_tis_per_dag",
    ),
    "outcome_unknown": Case(
        run=with_unknown_outcome,
        message=("memory://memory/root.json", "after 1 tries (timeout"),
        hint="run the task again",
    ),
    "output_unavailable": Case(
        run=silent_broker,
        message=("output feed of [2013-01-01T00:00:00.000Z", "topic feed of connection default"),
        hint="the next try, which continues at this point",
    ),
    "output_busy": Case(
        run=held_folder,
        message=("another process has locked ", "output feed"),
        hint="try again later",
    ),
    "registry_unavailable": Case(
        run=lambda _: registry_client().subjects(),
        message=(f"schema registry at http://127.0.0.1:{PORT} did not answer", "refused"),
        hint="the urls of its connection",
    ),
    "cluster_unavailable": Case(
        run=lambda _: cluster().submit(DriverRequest(name="n", job="j", arguments=(), conf={})),
        message=("Spark master spark://here:7077", f"http://127.0.0.1:{PORT} did not answer"),
        hint="spark.master.rest.enabled=true",
    ),
    "superseded": Case(
        run=overtaken_request,
        message=("(clear 1)", "clear 3", "[2013-01-02T00:00:00.000Z, 2013-01-04T00:00:00.000Z)"),
        hint="Trigger with from=2013-01-02T00:00:00.000Z, to=2013-01-04T00:00:00.000Z, take_over=true",
    ),
    "invalid_request": Case(
        run=lambda small: plan_declared(
            small,
            pipeline(small.store.uri),
            Interval(start=day(1).replace(year=1960), end=day(1)),
        ),
        message=("1960-01-01T00:00:00.000Z", "before 1970"),
        hint="use a later start_date",
    ),
    "invalid_pipeline": Case(
        run=lambda small: plan_declared(
            small, replace(pipeline(small.store.uri), name="other"), days(2, 3)
        ),
        message=("expected the lake of pipeline 'other', found that of 'small'",),
        hint="a warehouse of its own",
    ),
    "settings": Case(
        run=lambda _: resolve(KafkaSettings, "main", environ={}),
        message=("'main'", "TALLYSTICK_KAFKA_MAIN is not set", "TALLYSTICK_SECRETS_DIR is not set"),
        hint='set TALLYSTICK_KAFKA_MAIN to JSON such as {"bootstrap_servers": "host:port"}',
    ),
    "job_changed": Case(
        run=other_job,
        message=("found 000000000000", " was planned", "2013-01-02T00:00:00.000Z"),
        hint="clear this run's plan task",
    ),
    "identity_changed": Case(
        run=recreated,
        message=("topic events: expected id topic-id-1", "found id topic-id-2"),
        hint="tally topic adopt events",
    ),
    "schema_changed": Case(
        run=other_columns,
        message=("table events", "expected n long as in the lake", "found n int"),
        hint="under another name",
    ),
    "schema_not_found": Case(
        run=lambda _: ask_registry(404, b'{"error_code": 40401, "message": "not there"}'),
        message=("schema registry at http://127.0.0.1:", "answered 404 to GET /subjects", "40401"),
        hint="check the name of the subject",
    ),
    "schema_id_conflict": Case(
        run=lambda _: check_same([registered("int")], [registered("long")]),
        message=("schema id 7", "version 1 of orders-value with SHA-256 ", "found version 1 of"),
        hint="leads to another registry",
    ),
    "registry_refused": Case(
        run=lambda _: ask_registry(401, b""),
        message=("schema registry at http://127.0.0.1:", "answered 401 to GET /subjects"),
        hint="check user, password or token of the connection",
    ),
    "outside_retention": Case(
        run=expired,
        message=(
            "events[1]: expected offsets [4, 10), found a log that begins at 6",
            "2 offsets are gone",
        ),
        hint="accept_loss=true",
    ),
    "log_damaged": Case(
        run=rewritten,
        message=("events", "the boundary at 2013-01-02T00:00:00.000Z", "epoch 1", "not 0"),
        hint="ask the operators of the cluster",
    ),
    "too_many_dead_letters": Case(
        run=all_dead,
        message=(
            "[2013-01-02T00:00:00.000Z",
            "expected at least one record that is no dead letter, found that 12 of 12 records are dead letters (100%)",
            "12 type: field n, e.g. type: field n: ",
        ),
        hint="correct the declaration",
    ),
    "report_rejected": Case(
        run=changed_file,
        message=("memory://memory/attempts/", "bytes and ETag", "found 11 and"),
        hint="clear this run's stage task",
    ),
    "output_refused": Case(
        run=null_key,
        message=(
            "output feed of [2013-01-01T00:00:00.000Z",
            "row 1: expected a value in key column 'k', found null",
        ),
        hint="fix the job, so that the key has a value, and clear `plan`",
    ),
    "store_refused": Case(
        run=lambda _: Lake(Overwrites("odd"), counting_runtime()).open("small"),
        message=(
            "memory://odd",
            "stale If-Match",
            "expected 'refused: changed', found 'applied'",
        ),
        hint="Amazon S3",
    ),
    "nothing_planned": Case(
        run=lambda _: read_snapshot("memory://no-run-yet"),
        message=("nothing has been planned at memory://no-run-yet yet.",),
        hint="unpause the pipeline's DAG",
    ),
    "root_vanished": Case(
        run=vanished,
        message=("memory://memory/root.json does not exist, but memory://memory/", " does."),
        hint="restore root.json from a bucket version",
    ),
    "corrupt": Case(
        run=newer,
        message=("memory://memory/root.json", "tallystick.root/9", "tallystick.root/1"),
        hint="restore it from a bucket version",
    ),
}


def kinds() -> dict[str, type[TallystickError]]:
    """Return every kind that errors.py defines, except the groups."""
    found = (value for value in vars(errors).values() if isinstance(value, type))
    kinds = {c.kind: c for c in found if issubclass(c, TallystickError)}
    return {name: c for name, c in kinds.items() if c not in (TallystickError, *SHARED)}


def documented() -> dict[str, tuple[str, int]]:
    """Return the page's entry of each group: the action of Airflow, and the exit code."""
    rows = re.findall(r"^\| (\w+) \|[^|]*\| ([^|]*) \| (\d+) \|$", PAGE.read_text(), re.MULTILINE)
    return {group: (airflow, int(code)) for group, airflow, code in rows}


def test_the_table_has_every_kind() -> None:
    assert CASES.keys() == kinds().keys()


@pytest.fixture(params=CASES)
def raised(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[TallystickError]:
    """Yield the error of one kind, raised by its case; check its message and its hint."""
    case = CASES[request.param]
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{PORT}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    small = SmallLake()
    small.run(days(1, 2))
    before = small.store.get(keys.ROOT)
    kind = kinds()[request.param]
    with pytest.raises(TallystickError) as caught:
        case.run(small)
    assert type(caught.value) is kind
    for part in case.message:
        assert part in caught.value.message
    assert case.hint in caught.value.hint
    if request.param == "corrupt":
        assert small.store.get(keys.ROOT) != before, "a damaged object is never repaired"
    error = caught.value
    del caught
    yield error
    error.__traceback__ = error.__context__ = None
    if isinstance(error, errors.KafkaUnavailable):
        gc.collect()  # closes its socket within this test


def test_each_kind_has_both_values_and_a_next_step(raised: TallystickError) -> None:
    # The fixture checked the parts that the case names; these checks apply to every kind.
    for part in (raised.message, raised.hint):
        assert part.endswith("."), part
        assert not PYTHON_IN_TEXT.search(part), part
        assert "\n" not in part
    assert str(raised) == f"{raised.message} Next: {raised.hint}"


def test_a_task_ends_as_documented_and_its_log_has_the_whole_error_in_lines_that_fit(
    raised: TallystickError, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(AirflowException) as ended,
        airflow_errors(SPAN),
    ):
        raise raised
    group = next(g for g in GROUPS if isinstance(raised, g))
    action, _ = documented()[group.__name__]
    assert isinstance(ended.value, AirflowFailException) is ("retried" not in action)
    text = str(ended.value)
    assert text.startswith(raised.message)
    assert text.endswith(f" Next: {raised.hint}")
    assert text.count(SPAN) == 1
    assert ended.value.__cause__ is None
    lines = [r.getMessage() for r in caplog.records]
    assert [line for line in lines if len(line) > WIDTH_MAX and " " in line.strip()] == []
    more = f"More: docs/how-to/when-a-task-fails.md#{raised.kind}"
    assert " ".join(line.strip() for line in lines) == f"{raised.kind}: {text} {more}"
    # The same error, raised inside the Spark job.
    FileOutcome(str(tmp_path / "result.json")).write_error(raised)
    with pytest.raises(type(raised), match=re.escape(str(raised))):
        raise_reported_error(tmp_path / "result.json")


def test_each_task_names_the_interval_with_the_error(
    raised: TallystickError,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    def fail(_: Pipeline) -> Lake:
        raise raised

    for task in ("plan", "stage", "commit"):
        monkeypatch.setattr(f"tallystick.airflow.operators.{task}.open_lake", fail)
    declared = pipeline("memory://kinds")
    job = tmp_path / declared.job
    job.parent.mkdir()
    job.write_text("# job")
    dag = replay_dag(declared, schedule="@daily", start_date=day(1), job_root=tmp_path)
    run = FakeRun(interval=days(2, 3), run_after=day(3))
    run.returned = {"plan": {"interval": None, "version": 1, "plans": []}, "stage": []}
    for task in ("plan", "stage", "commit"):
        caplog.clear()
        with caplog.at_level(logging.WARNING), pytest.raises(AirflowException, match="Next: ") as e:
            run.execute(dag.task_dict[task])
        assert SPAN in str(e.value), task
        assert sum(SPAN in r.getMessage() for r in caplog.records) == 1, task
        shown = with_span(raised, SPAN)
        error = {"kind": raised.kind, "message": shown.message, "hint": raised.hint}
        assert run.pushed[task, "error"] == error
        assert run.pushed[task, NOTE] == f"{task}: {raised.kind}: {shown}"


def test_the_command_line_and_the_spark_job_exit_with_the_documented_code(
    raised: TallystickError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: str | None) -> None:
        raise raised

    monkeypatch.setattr(cli, "_open", fail)
    group = next(g for g in GROUPS if isinstance(raised, g))
    _, code = documented()[group.__name__]
    text, as_json = tally("status"), tally("status", "--json")
    assert (text.exit_code, as_json.exit_code, exit_code(raised)) == (code, code, code)
    assert (text.stdout, as_json.stdout) == ("", "")
    assert " ".join(text.stderr.split()) == f"{raised.kind}: {raised}"
    assert too_wide(text.stderr) == []
    assert json.loads(as_json.stderr) == {"error": error_json(raised)}


def test_a_broker_that_refuses_is_one_error_and_not_one_per_try_to_connect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    opening.open_warehouse("memory://silent")
    with caplog.at_level(logging.INFO), pytest.raises(errors.KafkaUnavailable) as caught:
        CASES["kafka_unavailable"].run(SmallLake())
    assert [one for one in caplog.records if one.name.startswith("kafka")] == []
    assert str(PORT) in caught.value.message
