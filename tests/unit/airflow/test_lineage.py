"""The OpenLineage events of the commit task, with the classes of Airflow's provider and of OpenLineage's client."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from airflow.providers.openlineage.extractors import OperatorLineage
from airflow.providers.openlineage.extractors.base import DefaultExtractor
from airflow.providers.openlineage.utils.utils import OpenLineageRedactor
from airflow.sdk import BaseOperator
from airflow.sdk._shared.secrets_masker import SecretsMasker
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.serde import Serde

from support.fakes import FakeLog
from support.small_lake import SmallLake, day, days
from tallystick.airflow import lineage
from tallystick.airflow.lineage import LineageEvents, is_enabled, on_complete, on_start
from tallystick.errors import StoreUnavailable
from tallystick.format import keys
from tallystick.operations.lineage import read_commit
from tallystick.pipeline import Column, Json, Lookback, Pipeline, Table, Topic
from tallystick.store import Store
from tallystick.store.memory import MemoryStore
from unit.airflow.bench import Bench, bench
from unit.airflow.runs import FakeRun

__all__ = ["bench"]

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "lineage.md"
TRANSPORT = "AIRFLOW__OPENLINEAGE__TRANSPORT"
CLICK = [
    Column("user_id", "long"),
    Column("os", "string", source="device.os"),
    Column("tags", "list<string>", required=False),
    Column("at", "struct<city: string, spots: map<string, long>>", required=False),
]


class Operator(LineageEvents):
    """An operator as the provider sees it: a pipeline, and what `execute` has noted."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline


@pytest.fixture(autouse=True)
def enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRANSPORT, '{"type": "console"}')


def run_of(**options: Any) -> FakeRun:
    return FakeRun(interval=days(1, 2), run_after=day(2), **options)


def events_of(bench: Bench, run: FakeRun) -> OperatorLineage[Any, Any]:
    """Return the lineage of the last event, as after a run of the task `commit`."""
    operator = Operator(bench.pipeline)
    operator.note_lineage(run.returned["plan"])
    return operator.get_openlineage_facets_on_complete(None)


def sent(found: OperatorLineage[Any, Any]) -> dict[str, Any]:
    """Return the event that would be sent, as JSON: with the provider's masking and the client's serialization."""
    event = RunEvent(
        eventType=RunState.COMPLETE,
        eventTime="2024-05-01T00:00:00Z",
        run=Run(runId=str(UUID(int=1)), facets=found.run_facets),
        job=Job(namespace="default", name="clicks.commit", facets=found.job_facets),
        inputs=found.inputs,
        outputs=found.outputs,
        producer="https://example.com",
    )
    masked = OpenLineageRedactor.from_masker(SecretsMasker()).redact(event, max_depth=20)
    text = Serde.to_json(masked)
    assert "non-serializable" not in text
    read: dict[str, Any] = json.loads(text)
    return read


def dataset(event: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [d for d in (*event["inputs"], *event["outputs"]) if d["name"].endswith(name)]
    return dict(found)


def own(facet: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facet.items() if not name.startswith("_")}


# ---------------------------------------------------------------- the lake of the page


def clicks(warehouse: str = "s3://lake/clicks", **options: Any) -> Pipeline:
    return Pipeline(
        name="clicks",
        topics=[Topic("clicks", decode=Json(CLICK))],
        warehouse=warehouse,
        job="spark_jobs/clicks.py",
        tables=[
            Table("clicks", columns=CLICK),
            Table(
                "per_os",
                columns=[Column("os", "string"), Column("clicks", "long")],
                keys=["os"],
                combine={"clicks": "sum"},
            ),
        ],
        **options,
    )


def page_pipeline(warehouse: str) -> Pipeline:
    return Pipeline(
        name="clicks",
        topics=[Topic("clicks", decode=Json(CLICK[:2]))],
        warehouse=warehouse,
        job="spark_jobs/clicks.py",
        tables=[Table("clicks", columns=CLICK[:2])],
    )


def clicked(user: int) -> dict[str, Any]:
    # The fake of a job finds a value by the column's source.
    return {"user_id": user, "device.os": "linux", "os": "linux"}


def clicks_lake(declared: Any = clicks) -> SmallLake:
    """Return a lake whose store names itself as one on S3."""
    log = FakeLog()
    log.create("clicks", partitions=2)
    for number in range(2):
        for hour in range(3):
            at = day(1) + timedelta(hours=hour)
            log.append("clicks", number, at, **clicked(hour))
    store = MemoryStore()
    store._uri = "s3://lake/clicks"
    return SmallLake(store=store, log=log, dag="clicks", declared=declared)


@pytest.fixture
def on_s3(monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    monkeypatch.setenv("TALLYSTICK_KAFKA_DEFAULT", '{"bootstrap_servers": "kafka-1:9092,b:1"}')
    small = clicks_lake()
    monkeypatch.setattr(lineage, "open_store", lambda *_, **__: small.store)
    return small


def complete(small: SmallLake) -> OperatorLineage[Any, Any]:
    planned = small.plan(days(1, 2))
    small.run(days(1, 2))
    operator = Operator(small.declared(small.store.uri))
    operator.note_lineage({"plans": [{"plan": p.plan} for p in planned.intervals]})
    return operator.get_openlineage_facets_on_complete(None)


# ---------------------------------------------------------------- what an event has


def test_datasets_have_the_names_of_openlineages_specification(on_s3: SmallLake) -> None:
    event = sent(complete(on_s3))
    names = [(d["namespace"], d["name"]) for d in (*event["inputs"], *event["outputs"])]
    assert names == [
        ("kafka://kafka-1:9092", "clicks"),
        ("s3://lake", "clicks/tables/clicks"),
        ("s3://lake", "clicks/tables/dead_letters"),
        ("s3://lake", "clicks/tables/per_os"),
    ]
    assert all("symlinks" not in d["facets"] for d in event["outputs"])


def test_a_topic_has_offset_ranges_and_the_number_of_its_records(on_s3: SmallLake) -> None:
    topic = sent(complete(on_s3))["inputs"][0]
    described = on_s3.log.describe(["clicks"])["clicks"]
    assert own(topic["inputFacets"]["tallystick_offsets"]) == {
        "ranges": [
            {"topic": "clicks", "partition": 0, "start": 0, "end": 3},
            {"topic": "clicks", "partition": 1, "start": 0, "end": 3},
        ],
        "incarnations": [
            {
                "topic": "clicks",
                "topicId": described.topic_id,
                "clusterId": described.cluster_id,
            }
        ],
    }
    assert own(topic["inputFacets"]["inputStatistics"]) == {"rowCount": 6}


def test_a_table_has_snapshots_statistics_and_nested_columns(on_s3: SmallLake) -> None:
    found = dataset(sent(complete(on_s3)), "tables/clicks")
    (plan,) = [
        e.committed.plan for e in on_s3.lake.load_existing().whole_ledger().entries if e.committed
    ]
    read = read_commit(on_s3.lake, plan)
    assert read is not None
    written = next(t for t in read.tables if t.name == "clicks")
    assert found["facets"]["version"]["datasetVersion"] == str(written.after)
    assert own(found["outputFacets"]["tallystick_snapshots"]) == {
        "after": str(written.after),
        "droppedFiles": 0,
    }
    assert own(found["outputFacets"]["outputStatistics"]) == {
        "rowCount": 6,
        "size": written.size_bytes,
        "fileCount": written.files,
    }
    fields = {f["name"]: f for f in found["facets"]["schema"]["fields"]}
    assert fields["os"]["type"] == "string"
    assert fields["tags"]["type"] == "array"
    assert fields["tags"]["fields"] == [{"name": "_element", "type": "string", "fields": []}]
    assert [f["name"] for f in fields["at"]["fields"]] == ["city", "spots"]
    assert [f["name"] for f in fields["at"]["fields"][1]["fields"]] == ["key", "value"]
    assert fields["_offset"]["description"] == "the offset of the row's record"


def test_columns_have_the_fields_that_they_are_declared_to_have(on_s3: SmallLake) -> None:
    event = sent(complete(on_s3))
    topic_fields = {f["name"] for f in event["inputs"][0]["facets"]["schema"]["fields"]}
    of_clicks = dataset(event, "tables/clicks")["facets"]["columnLineage"]["fields"]
    (source,) = of_clicks["os"]["inputFields"]
    assert (source["namespace"], source["name"], source["field"]) == (
        "kafka://kafka-1:9092",
        "clicks",
        "device.os",
    )
    (how,) = source["transformations"]
    # The job may change the value, so nothing more than this is known.
    assert (how["type"], "subtype" in how) == ("DIRECT", False)
    (exact,) = of_clicks["_offset"]["inputFields"][0]["transformations"]
    assert (exact["type"], exact["subtype"]) == ("DIRECT", "IDENTITY")
    for output in event["outputs"]:
        for column in output["facets"]["columnLineage"]["fields"].values():
            assert {f["field"] for f in column["inputFields"]} <= topic_fields


def test_a_key_groups_and_a_column_that_the_job_counts_has_no_origin(on_s3: SmallLake) -> None:
    of_table = dataset(sent(complete(on_s3)), "per_os")["facets"]["columnLineage"]
    assert of_table["fields"].keys() == {"os"}
    (group,) = of_table["dataset"]
    assert group["field"] == "device.os"
    assert group["transformations"] == [{"type": "INDIRECT", "subtype": "GROUP_BY"}]


def test_a_table_without_known_origins_has_no_column_lineage(on_s3: SmallLake) -> None:
    def by_dataframe(warehouse: str) -> Pipeline:
        base = clicks(warehouse)
        table = Table("per_os", columns=[Column("os", "string")], keys=["os"])
        return Pipeline(
            name=base.name,
            topics=base.topics,
            warehouse=warehouse,
            job=base.job,
            tables=[base.tables[0], table],
            lookback=Lookback(tables=["per_os"], back=timedelta(days=1), uncommitted="stale"),
        )

    on_s3.declared = by_dataframe
    event = sent(complete(on_s3))
    (output,) = [d for d in event["outputs"] if d["name"].endswith("per_os")]
    assert "columnLineage" not in output["facets"]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 1
    # The table's earlier rows are an input of the job.
    assert [d["name"] for d in event["inputs"]] == ["clicks", "clicks/tables/per_os"]


def test_the_run_has_its_commits_with_intervals_versions_and_totals(on_s3: SmallLake) -> None:
    event = sent(complete(on_s3))
    facet = event["run"]["facets"]["tallystick_commit"]
    version = on_s3.lake.load_existing().root.version
    (commit,) = facet["commits"]
    assert own(facet) == {
        "pipeline": "clicks",
        "lake": "s3://lake/clicks",
        "version": version,
        "commits": [commit],
        "isWhole": True,
    }
    assert (commit["interval"], commit["generation"]) == (days(1, 2).to_json(), 1)
    assert (commit["mode"], commit["version"]) == ("append", version)
    assert commit["totals"]["records"] == 6
    assert keys.record_version(commit["record"]) == version


def test_facets_of_tallystick_have_the_schema_of_their_kind(on_s3: SmallLake) -> None:
    event = sent(complete(on_s3))
    ends = {
        "RunFacet": event["run"]["facets"]["tallystick_commit"],
        "InputDatasetFacet": event["inputs"][0]["inputFacets"]["tallystick_offsets"],
        "OutputDatasetFacet": event["outputs"][0]["outputFacets"]["tallystick_snapshots"],
    }
    for kind, facet in ends.items():
        assert re.fullmatch(
            rf"https://openlineage\.io/spec/[\d-]+/OpenLineage\.json#/\$defs/{kind}",
            facet["_schemaURL"],
        )


# ---------------------------------------------------------------- when it is read


def test_a_cleared_commit_has_the_lineage_of_the_first_try(bench: Bench) -> None:
    run = run_of()
    bench.run_all(run)
    first = sent(events_of(bench, run))
    run.clear_number = 1
    run.execute(bench.task("commit"))
    assert sent(events_of(bench, run)) == first
    for task in ("plan", "stage", "commit"):
        run.execute(bench.task(task))
    assert all(p["committed"] for p in run.returned["plan"]["plans"])
    assert sent(events_of(bench, run)) == first
    assert first["run"]["facets"]["tallystick_commit"]["commits"]


def test_a_replacement_has_its_own_lineage_and_the_replaced_run_keeps_its(bench: Bench) -> None:
    run = run_of()
    bench.run_all(run)
    plan = {"plans": list(run.returned["plan"]["plans"])}
    first = sent(events_of(bench, run))
    bench.deploy("version 2")
    run.clear_number = 1
    bench.run_all(run)
    second = sent(events_of(bench, run))
    (commit,) = second["run"]["facets"]["tallystick_commit"]["commits"]
    assert (commit["mode"], commit["generation"]) == ("replace", 2)
    run.returned["plan"] = plan
    assert sent(events_of(bench, run)) == first


def test_after_a_failure_the_event_has_what_is_committed(bench: Bench) -> None:
    run = run_of()
    bench.run_all(run)
    whole = sent(events_of(bench, run))
    lost = keys.plan(day(2), day(3), f"{7:032x}")
    run.returned["plan"]["plans"].append({"plan": lost, "sha256": None, "committed": False})
    assert sent(events_of(bench, run)) == whole


def test_a_run_without_a_commit_has_its_declared_topics_and_tables(bench: Bench) -> None:
    run = run_of()
    run.execute(bench.task("plan"))
    event = sent(events_of(bench, run))
    assert event == sent(on_start(bench.pipeline))
    assert [d["name"] for d in event["inputs"]] == ["events"]
    assert [d["name"] for d in event["outputs"]] == [
        "tables/events",
        "tables/per_kind",
        "tables/dead_letters",
    ]
    assert event["run"]["facets"] == {}


def test_the_provider_gets_the_lineage_from_an_operator(bench: Bench) -> None:
    class Committing(LineageEvents, BaseOperator):
        """An operator as the task `commit` has it."""

        def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.pipeline = pipeline

    run = run_of()
    bench.run_all(run)
    operator = Committing(task_id="commit", pipeline=bench.pipeline)
    extractor = DefaultExtractor(operator)
    started = extractor.extract()
    assert started is not None
    assert sent(started) == sent(on_start(bench.pipeline))
    operator.note_lineage(run.returned["plan"])
    whole = sent(events_of(bench, run))
    for found in (extractor.extract_on_complete(None), extractor.extract_on_failure(None)):
        assert found is not None
        assert sent(found) == whole


# ---------------------------------------------------------------- what can go wrong


def test_nothing_is_noted_or_read_if_no_transport_is_set(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of()
    bench.run_all(run)
    monkeypatch.delenv(TRANSPORT)
    monkeypatch.setattr(lineage, "settings_named", _must_not_run)
    assert not is_enabled()
    operator = Operator(bench.pipeline)
    operator.note_lineage(run.returned["plan"])
    assert operator.noted is None


def test_nothing_is_noted_without_the_provider(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "airflow.providers.openlineage", None)
    monkeypatch.setattr(lineage, "settings_named", _must_not_run)
    operator = Operator(bench.pipeline)
    operator.note_lineage({"plans": []})
    assert operator.noted is None


def test_the_dag_and_its_tasks_import_without_the_provider() -> None:
    code = (
        "import sys\n"
        "import airflow.providers.apache.spark.operators.spark_submit\n"  # finds all providers
        "sys.modules['airflow.providers.openlineage'] = sys.modules['openlineage'] = None\n"
        "import tallystick.airflow.dag, tallystick.airflow.lineage as lineage\n"
        "assert not lineage.is_enabled()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_lake_that_does_not_answer_leaves_the_declared_datasets(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = run_of()
    bench.run_all(run)

    def refuse(*_: object, **__: object) -> Store:
        raise StoreUnavailable("the store does not answer.", hint="wait.")

    monkeypatch.setattr(lineage, "open_store", refuse)
    assert sent(events_of(bench, run)) == sent(on_start(bench.pipeline))
    assert "the store does not answer" in caplog.text


def test_a_damaged_commit_leaves_the_others_and_is_marked(
    on_s3: SmallLake, caplog: pytest.LogCaptureFixture
) -> None:
    on_s3.log.append("clicks", 0, day(2) + timedelta(hours=1), **clicked(9))
    complete(on_s3)
    (second,) = on_s3.run(days(2, 3))
    damaged = read_commit(on_s3.lake, second.plan)
    assert damaged is not None
    plans = [
        e.committed.plan for e in on_s3.lake.load_existing().whole_ledger().entries if e.committed
    ]
    on_s3.overwrite(damaged.record, b"{")
    noted = lineage.NotedRun(plans=tuple(plans), server=None)
    facet = sent(on_complete(clicks(), noted))["run"]["facets"]["tallystick_commit"]
    assert [c["interval"] for c in facet["commits"]] == [days(1, 2).to_json()]
    assert not facet["isWhole"]
    assert damaged.record in caplog.text


def test_reading_ends_at_its_limit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = run_of()
    bench.run_all(run)
    release = threading.Event()
    monkeypatch.setattr(
        "tallystick.operations.lineage.read_commit", lambda *_: release.wait(60) and None
    )
    monkeypatch.setattr(lineage, "READING_S_MAX", 0.01)
    try:
        assert sent(events_of(bench, run)) == sent(on_start(bench.pipeline))
    finally:
        release.set()
    assert "was not read whole" in caplog.text


def test_more_commits_than_are_read_are_marked(
    on_s3: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_s3.log.append("clicks", 0, day(2) + timedelta(hours=1), **clicked(9))
    plans = [result.plan for n in (1, 2) for result in on_s3.run(days(n, n + 1))]
    noted = lineage.NotedRun(plans=tuple(plans), server=None)

    def read() -> tuple[int, bool]:
        facet = sent(on_complete(clicks(), noted))["run"]["facets"]["tallystick_commit"]
        return len(facet["commits"]), facet["isWhole"]

    assert read() == (2, True)
    monkeypatch.setattr(lineage, "COMMITS_MAX", 1)
    assert read() == (1, False)


def test_without_kafkas_address_the_event_has_the_tables(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = run_of()
    bench.run_all(run)
    whole = sent(events_of(bench, run))
    monkeypatch.setenv("TALLYSTICK_KAFKA_DEFAULT", "not JSON: secret-1")
    event = sent(events_of(bench, run))
    assert event["inputs"] == []
    assert [d["name"] for d in event["outputs"]] == [d["name"] for d in whole["outputs"]]
    assert all("columnLineage" not in d["facets"] for d in event["outputs"])
    assert event["run"] == whole["run"]
    assert "the OpenLineage event has less" in caplog.text
    assert "secret-1" not in caplog.text


def test_an_address_that_only_airflow_knows_is_noted_by_the_task(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of()
    bench.run_all(run)
    monkeypatch.delenv("TALLYSTICK_KAFKA_DEFAULT")
    monkeypatch.setenv(
        "AIRFLOW_CONN_KAFKA_DEFAULT", '{"conn_type": "kafka", "host": "far", "port": 1}'
    )
    # In the fork, no connection of Airflow is requested.
    assert on_start(bench.pipeline).inputs == []
    event = sent(events_of(bench, run))
    assert [d["namespace"] for d in event["inputs"]] == ["kafka://far:1"]


def test_no_secret_and_no_endpoint_is_in_an_event(
    on_s3: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = {
        "bootstrap_servers": "kafka-1:9092",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "user-of-kafka",
        "sasl_plain_password": "secret-of-kafka",
        "proxy_url": "socks5://proxy-user:proxy-secret@proxy:1080",
    }
    monkeypatch.setenv("TALLYSTICK_KAFKA_DEFAULT", json.dumps(kafka))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key-of-s3")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-s3")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://endpoint-of-s3:9000")
    text = json.dumps([sent(complete(on_s3)), sent(on_start(clicks()))])
    assert "kafka://kafka-1:9092" in text
    for secret in ("user-of", "secret", "proxy", "key-of", "endpoint", "SASL"):
        assert secret not in text


def _must_not_run(*_: object) -> None:
    raise AssertionError("expected no settings to be resolved")


# ---------------------------------------------------------------- the page


def test_the_example_of_the_page_is_an_event_of_this_code(
    on_s3: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = clicks_lake(page_pipeline)
    monkeypatch.setattr(lineage, "open_store", lambda *_, **__: small.store)
    event = sent(complete(small))
    shown = {
        "eventType": event["eventType"],
        "run": {"facets": event["run"]["facets"]},
        "inputs": event["inputs"],
        "outputs": [dataset(event, "tables/clicks")],
    }
    (block,) = re.findall(r"^```json\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert _as_shown(json.loads(block)) == _as_shown(shown)


def _as_shown(value: Any) -> Any:
    """Return JSON without what the page leaves out, and without sizes, which Arrow determines."""
    if isinstance(value, list):
        return [_as_shown(one) for one in value if not _is_left_out(one)]
    if not isinstance(value, dict):
        return value
    left = {k: _as_shown(v) for k, v in value.items() if k not in LEFT_OUT and v != []}
    return {k: 0 if k == "size" else v for k, v in left.items()}


LEFT_OUT = {"_producer", "_schemaURL", "_topic", "_kafka_partition", "_timestamp", "user_id"}


def _is_left_out(value: Any) -> bool:
    """Return True for a field that the page does not show."""
    shown = ("os", "device.os", "_offset")
    return (
        isinstance(value, dict) and {"name", "type"} <= value.keys() and value["name"] not in shown
    )


def test_the_page_names_each_facet_of_tallystick() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in ("tallystick_commit", "tallystick_offsets", "tallystick_snapshots"):
        assert f"`{name}`" in text
