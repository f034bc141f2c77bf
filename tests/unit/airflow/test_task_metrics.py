"""The metrics that the four tasks record, compared with their XComs and the commit's record."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRescheduleException

from support.small_lake import day, days
from tallystick.airflow.assets import asset_of
from tallystick.airflow.operators.plan import PlanOperator
from tallystick.errors import NotYet
from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.operations.metrics import METRICS
from tallystick.outputs.files import FileOutput
from tallystick.store import ETag, NotApplied, Outcome
from tallystick.store.memory import MemoryStore
from unit.airflow.bench import Bench, bench
from unit.airflow.runs import FakeRun
from unit.airflow.stats import SentToStatsd, otlp, statsd

__all__ = ["bench"]

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")


def run_of(interval: Interval | None = None, **options: Any) -> FakeRun:
    interval = interval or days(2, 3)
    return FakeRun(interval=interval, run_after=interval.end, **options)


def sums(sent: SentToStatsd, *by: str) -> dict[tuple[str, ...], float]:
    """Return the sums of the counters since the last call by name and these tags; check the tags of all."""
    found: Counter[tuple[str, ...]] = Counter()
    for name, tags, value, kind in sent.lines():
        assert set(tags) == set(METRICS[name].attributes)
        assert tags["pipeline"] == "small"
        if kind == "c":
            found[name, *(tags[tag] for tag in by if tag in tags)] += value  # type: ignore[assignment]
    return dict(found)


def of_commit(counts: dict[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    return {key: value for key, value in counts.items() if key[0].startswith("tallystick.commit")}


def expected(returned: Any) -> dict[tuple[str, ...], float]:
    """Return the counts of the XCom of `commit`. It has the bytes of all tables together."""
    own = returned["committed"]
    totals = own["totals"]
    return {
        ("tallystick.commit.intervals",): own["intervals"],
        ("tallystick.commit.records",): totals["records"],
        ("tallystick.commit.dead_letters", "json"): totals["dead_letters"],
        **{("tallystick.commit.rows", table): rows for table, rows in own["rows"].items()},
        ("tallystick.commit.bytes",): own["bytes"],
    }


def without_tables_of_bytes(counts: dict[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    found: Counter[tuple[str, ...]] = Counter()
    for key, value in counts.items():
        found[key[:1] if key[0].endswith("bytes") else key] += value  # type: ignore[assignment]
    return dict(found)


def lose_swaps(monkeypatch: pytest.MonkeyPatch, *, count: int) -> None:
    """Let other writers win the next swaps."""
    real, lost = MemoryStore.replace, iter(range(count))

    def losing(store: MemoryStore, key: str, body: bytes, *, expected: ETag) -> Outcome:
        if key == keys.ROOT and next(lost, None) is not None:
            return NotApplied(because="changed")
        return real(store, key, body, expected=expected)

    monkeypatch.setattr(MemoryStore, "replace", losing)


def test_the_commits_counters_equal_its_xcom_and_its_record(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with statsd(monkeypatch) as sent:
        returned = bench.run_all(run_of())
        counts = sums(sent, "table", "kind")
    assert without_tables_of_bytes(of_commit(counts)) == expected(returned)
    record = bench.lake.record(returned["record"])
    assert record is not None
    (interval,) = record.intervals
    assert interval.report is not None
    report = bench.lake.report(interval.report)
    assert report is not None
    for table in returned["committed"]["rows"]:
        files = [file for file in report.files if file.table == table]
        assert counts["tallystick.commit.rows", table] == sum(file.rows for file in files)
        assert counts["tallystick.commit.bytes", table] == sum(file.size_bytes for file in files)
    assert counts["tallystick.commit.records",] == interval.totals.records > 0


def test_opentelemetry_gets_the_same(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with otlp(monkeypatch) as sent:
        returned = bench.run_all(run_of())
        found, histograms = sent.sums(), sent.histograms()
    counts: Counter[tuple[str, ...]] = Counter()
    for (name, labels), value in found.items():
        tags = dict(labels)
        key = (
            name.removeprefix("airflow."),
            *(tags[tag] for tag in ("table", "kind") if tag in tags),
        )
        counts[key] += value  # type: ignore[assignment]
    assert without_tables_of_bytes(of_commit(counts)) == expected(returned)  # type: ignore[arg-type]
    assert {name: count for (name, _, _), (count, _) in histograms.items()} == {
        f"airflow.tallystick.{task}.duration": 1 for task in ("plan", "stage", "commit")
    }


def test_a_rerun_of_what_is_committed_counts_no_commit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of()
    bench.run_all(run)
    with statsd(monkeypatch) as sent:
        again = run.execute(bench.task("commit"))
        counts = sums(sent, "table", "kind")
    assert again["committed"]["already"] == 1
    assert of_commit(counts) == {}


def test_each_task_sends_its_requests(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of()
    with statsd(monkeypatch) as sent:
        run.execute(bench.task("plan"))
        planned = sums(sent, "task", "verb", "outcome")
        bench.stage(run)
        staged = sums(sent, "task", "verb", "outcome")
        run.execute(bench.task("commit"))
        committed = sums(sent, "task", "verb", "outcome")
    name = "tallystick.store.requests"
    assert planned[name, "plan", "replace", "applied"] >= 1  # also on scratch objects, once
    assert staged[name, "stage", "get", "found"] > 0
    assert committed[name, "commit", "replace", "applied"] == 1
    assert {key[1] for key in planned if key[0] == name} == {"plan"}
    assert not any(key[0] == "tallystick.swap.retries" for key in {**planned, **committed})


def test_a_commit_that_loses_races_sends_its_retries(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of()
    run.execute(bench.task("plan"))
    bench.stage(run)
    lose_swaps(monkeypatch, count=2)
    with statsd(monkeypatch) as sent:
        run.execute(bench.task("commit"))
        counts = sums(sent, "task", "verb", "outcome")
    assert counts["tallystick.swap.retries", "commit"] == 2
    assert counts["tallystick.store.requests", "commit", "replace", "not_applied"] == 2
    assert counts["tallystick.commit.intervals",] == 1


def test_a_plan_that_is_rescheduled_sends_no_duration(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_yet(*_: object) -> Any:
        raise NotYet("the interval has not ended.", hint="wait.")

    monkeypatch.setattr(PlanOperator, "plan_run", not_yet)
    with statsd(monkeypatch) as sent:
        with pytest.raises(AirflowRescheduleException):
            run_of().execute(bench.task("plan"))
        assert not any(kind == "ms" for *_, kind in sent.lines())


def test_publish_counts_what_its_xcom_contains(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = FileOutput(name="files", table="events", folder=str(tmp_path / "out"))
    bench.pipeline = replace(bench.pipeline, outputs=[output])
    for first in (1, 2):
        bench.run_all(run_of(days(first, first + 1), run_id=f"scheduled__{day(first).isoformat()}"))
    with statsd(monkeypatch) as sent:
        returned = run_of().execute(bench.task("publish"))
        counts = sums(sent, "output")
    assert returned == {"published": {"files": 2}}
    assert counts["tallystick.publish.intervals", "files"] == 2
    lines = [
        line
        for path in (tmp_path / "out").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert counts["tallystick.publish.rows", "files"] == len(lines) > 0


def test_a_backend_that_raises_changes_no_result(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with statsd(monkeypatch):
        monkeypatch.setattr("airflow.sdk.observability.stats.incr", lambda *_, **__: 1 // 0)
        monkeypatch.setattr("airflow.sdk.observability.stats.timing", lambda *_, **__: 1 // 0)
        run = run_of()
        returned = bench.run_all(run)
    assert returned["covered"] == [days(2, 3).to_json()]
    assert run.events[asset_of(bench.pipeline).name].extra == returned


def test_every_metric_of_tasks_in_the_table_is_sent(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = FileOutput(name="files", table="events", folder=str(tmp_path / "out"))
    bench.pipeline = replace(bench.pipeline, outputs=[output])
    lose_swaps(monkeypatch, count=1)
    with statsd(monkeypatch) as sent:
        run = run_of()
        bench.run_all(run)
        run.execute(bench.task("publish"))
        names = {name for name, *_ in sent.lines()}
    assert names == {name for name, metric in METRICS.items() if metric.source == "task"}
