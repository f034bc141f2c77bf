"""The metrics of tasks: what reaches a real StatsD server and a real OTLP collector, and that nothing fails a task."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import Any

import pytest
from airflow.sdk.observability import stats

from support.small_lake import SmallLake, days
from tallystick.airflow import metrics
from tallystick.errors import StoreUnavailable
from tallystick.format import keys
from tallystick.format.record import Record
from tallystick.format.report import Report
from tallystick.operations.commit import CommitResult
from tallystick.operations.metrics import METRICS
from tallystick.operations.publish import Published
from tallystick.pipeline import DEAD_LETTERS, Pipeline
from tallystick.store import Store
from tallystick.store.counted import CountedStore
from tallystick.store.memory import MemoryStore
from unit.airflow.stats import configured, otlp, statsd

PIPELINE = {"pipeline": "small"}


class Operator:
    """An operator that reads a store."""

    def __init__(
        self, pipeline: Pipeline, store: Store, error: BaseException | None = None
    ) -> None:
        self.pipeline = pipeline
        self.store = store
        self.error = error

    @metrics.measured("plan")
    def execute(self, context: Any) -> str:
        """Read an object, and another one that does not exist."""
        store = metrics.counted(self.store)
        store.get(keys.ROOT)
        store.get("absent")
        if self.error is not None:
            raise self.error
        return f"returned {context}"


@pytest.fixture(scope="module")
def committed() -> tuple[SmallLake, CommitResult, Record, Report]:
    """Return a lake with one committed day, the result of the commit, its record and its report."""
    small = SmallLake()
    (result,) = small.run(days(2, 3))
    root = small.lake.load_existing().root
    assert root.record is not None
    record = small.lake.record(root.record)
    assert record is not None
    (interval,) = record.intervals
    assert interval.report is not None
    report = small.lake.report(interval.report)
    assert report is not None
    return small, result, record, report


@pytest.fixture(autouse=True)
def _no_errors_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_FAILED", set())


def operator(committed: Any, error: BaseException | None = None) -> Operator:
    small: SmallLake = committed[0]
    return Operator(small.declared(small.store.uri), small.store, error)


def expected_counts(record: Record, report: Report) -> dict[tuple[str, str], int]:
    """Return what the record and the report contain, by name and the value of the second tag."""
    (interval,) = record.intervals
    rows: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for file in report.files:
        rows[file.table] = rows.get(file.table, 0) + file.rows
        sizes[file.table] = sizes.get(file.table, 0) + file.size_bytes
    assert interval.totals.dead_letters > 0
    assert len(rows) == 3
    return {
        ("tallystick.commit.intervals", ""): 1,
        ("tallystick.commit.records", ""): interval.totals.records,
        ("tallystick.commit.dead_letters", "json"): interval.totals.dead_letters,
        **{("tallystick.commit.rows", table): count for table, count in rows.items()},
        **{("tallystick.commit.bytes", table): size for table, size in sizes.items()},
    }


# ---------------------------------------------------------------- StatsD


def test_statsd_gets_the_counts_of_the_commits_record(
    committed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, result, record, report = committed
    with statsd(monkeypatch) as sent:
        metrics.record_commit(small.lake, "small", result, report)
        lines = sent.lines()
    assert all(tags.pop("pipeline") == "small" and kind == "c" for _, tags, _, kind in lines)
    found = {(name, next(iter(tags.values()), "")): count for name, tags, count, _ in lines}
    assert len(found) == len(lines)
    assert found == expected_counts(record, report)


def test_statsd_without_tags_gets_names_that_remain_meaningful(
    committed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, result, record, report = committed
    with statsd(monkeypatch, tags=False) as sent:
        metrics.record_commit(small.lake, "small", result, report)
        lines = sent.lines()
    sums: dict[str, float] = {}
    for name, tags, count, _ in lines:
        assert tags == {}
        sums[name] = sums.get(name, 0) + count
    expected: dict[str, int] = {}
    for (name, _), count in expected_counts(record, report).items():
        expected[name] = expected.get(name, 0) + count
    assert sums == expected


def test_a_task_sends_its_duration_and_its_requests(
    committed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with statsd(monkeypatch) as sent:
        assert operator(committed).execute("context") == "returned context"
        duration, *requests = sent.lines()
    name, tags, took_ms, kind = duration
    assert (name, tags, kind) == ("tallystick.plan.duration", PIPELINE, "ms")
    assert 0 < took_ms < 60_000
    place = {**PIPELINE, "task": "plan", "verb": "get"}
    assert requests == [
        ("tallystick.store.requests", {**place, "outcome": "found"}, 1, "c"),
        ("tallystick.store.requests", {**place, "outcome": "missing"}, 1, "c"),
    ]


def test_a_task_that_fails_sends_its_requests_and_no_duration(
    committed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with statsd(monkeypatch) as sent:
        with pytest.raises(ValueError, match="own"):
            operator(committed, ValueError("own")).execute(None)
        assert {name for name, *_ in sent.lines()} == {"tallystick.store.requests"}


def test_lost_swaps_are_sent_as_retries(committed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    small = committed[0]

    class Swapping(Operator):
        @metrics.measured("commit")
        def execute(self, context: Any) -> str:
            stale = small.lake.load_existing().etag
            store = metrics.counted(MemoryStore())
            store.create(keys.ROOT, b"x")
            store.replace(keys.ROOT, b"y", expected=stale)
            return ""

    with statsd(monkeypatch) as sent:
        Swapping(operator(committed).pipeline, small.store).execute(None)
        retries = [line for line in sent.lines() if line[0] == "tallystick.swap.retries"]
    assert retries == [("tallystick.swap.retries", {**PIPELINE, "task": "commit"}, 1, "c")]


def test_published_rows_are_counted_by_output(monkeypatch: pytest.MonkeyPatch) -> None:
    published = Published(
        output="files", interval=days(1, 2), generation=1, plan="p", rows=5, resumed=False
    )
    place = {**PIPELINE, "output": "files"}
    with statsd(monkeypatch) as sent:
        metrics.record_published("small", published)
        metrics.record_published("small", replace(published, rows=0))
        assert sent.lines() == [
            ("tallystick.publish.intervals", place, 1, "c"),
            ("tallystick.publish.rows", place, 5, "c"),
            ("tallystick.publish.intervals", place, 1, "c"),
        ]


def test_a_commit_of_an_earlier_call_is_not_counted_again(
    committed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, result, _, report = committed
    with statsd(monkeypatch) as sent:
        metrics.record_commit(small.lake, "small", replace(result, already=True), report)
        assert sent.lines() == []


def test_every_metric_of_the_table_is_sent_with_its_tags(
    committed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, result, _, report = committed
    with statsd(monkeypatch) as sent:
        metrics.record_commit(small.lake, "small", result, report)
        operator(committed).execute(None)
        lines = sent.lines()
    for name, tags, _, kind in lines:
        metric = METRICS[name]
        assert metric.source == "task"
        assert kind == {"counter": "c", "histogram": "ms"}[metric.kind]
        assert set(tags) == set(metric.attributes)


# ---------------------------------------------------------------- OpenTelemetry


def test_a_collector_gets_the_counts_of_the_commits_record(
    committed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, result, record, report = committed
    with otlp(monkeypatch) as sent:
        metrics.record_commit(small.lake, "small", result, report)
        operator(committed).execute(None)
        sums, histograms = sent.sums(), sent.histograms()
    found = {
        (name.removeprefix("airflow."), dict(labels).get("kind", dict(labels).get("table", ""))): v
        for (name, labels), v in sums.items()
        if "commit" in name
    }
    assert found == expected_counts(record, report)
    requests = {dict(labels)["outcome"]: v for (name, labels), v in sums.items() if "store" in name}
    assert requests == {"found": 1, "missing": 1}
    ((key, (count, took_ms)),) = histograms.items()
    assert key == ("airflow.tallystick.plan.duration", "ms", (("pipeline", "small"),))
    assert count == 1
    assert took_ms > 0


def test_each_process_sends_its_own_increments(
    committed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With deltas, the sum over several short processes is the sum of their counts."""
    small, result, record, report = committed
    records = 0.0
    for _ in range(2):
        with otlp(monkeypatch) as sent:
            metrics.record_commit(small.lake, "small", result, report)
            records += sent.sums()["airflow.tallystick.commit.records", (("pipeline", "small"),)]
    assert records == 2 * record.intervals[0].totals.records


# ---------------------------------------------------------------- dead letters by kind


def kinds_sent(committed: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    small, result, _, report = committed
    lake = replace_store(small, store)
    with statsd(monkeypatch) as sent:
        metrics.record_commit(lake, "small", result, report)
        return {
            tags["kind"]: count
            for name, tags, count, _ in sent.lines()
            if name == "tallystick.commit.dead_letters"
        }


def replace_store(small: SmallLake, store: Store) -> Any:
    return type(small.lake)(store, small.runtime, proven=True)


class Failing(CountedStore):
    """A store that fails to read data files: at once, or only when the test ends."""

    def __init__(self, store: Store, *, ends: threading.Event | None = None) -> None:
        super().__init__(store, metrics.RequestCounts(swap_key=keys.ROOT))
        self.ends = ends

    def get(self, key: str) -> Any:
        if self.ends is not None:
            self.ends.wait(30)
        raise StoreUnavailable("no answer.", hint="wait.")


def test_a_store_that_fails_leaves_the_kinds_unread(
    committed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = committed[1].totals.dead_letters
    store = Failing(committed[0].store)
    assert kinds_sent(committed, store, monkeypatch) == {metrics.NOT_READ: dead}


def test_kinds_that_do_not_add_up_are_not_sent(
    committed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lacking(CountedStore):
        """A store from which the files are gone."""

        def get(self, key: str) -> Any:
            return None

    store = Lacking(committed[0].store, metrics.RequestCounts(swap_key=keys.ROOT))
    dead = committed[1].totals.dead_letters
    assert kinds_sent(committed, store, monkeypatch) == {metrics.NOT_READ: dead}


def test_a_store_that_does_not_answer_delays_a_task_only_briefly(
    committed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "KIND_WAIT_S", 0.05)
    ends = threading.Event()
    dead = committed[1].totals.dead_letters
    store = Failing(committed[0].store, ends=ends)
    assert kinds_sent(committed, store, monkeypatch) == {metrics.NOT_READ: dead}
    assert not ends.is_set(), "the count was sent while the store had not answered"
    ends.set()


@pytest.mark.parametrize("limit", ["KIND_FILES_MAX", "KIND_BYTES_MAX"])
def test_many_dead_letters_are_not_read(
    committed: Any, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(metrics, limit, 0)
    dead = committed[1].totals.dead_letters
    assert kinds_sent(committed, committed[0].store, monkeypatch) == {metrics.NOT_READ: dead}


def test_without_a_backend_nothing_is_read(committed: Any) -> None:
    small, result, _, report = committed
    reads: list[str] = []

    class Watched(CountedStore):
        def get(self, key: str) -> Any:
            reads.append(key)
            return super().get(key)

    store = Watched(small.store, metrics.RequestCounts(swap_key=keys.ROOT))
    metrics.record_commit(replace_store(small, store), "small", result, report)
    assert reads == []
    assert any(file.table == DEAD_LETTERS for file in report.files)


# ---------------------------------------------------------------- nothing fails a task


class BrokenBackend:
    """A backend that raises for everything."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"secret of {name}")


@pytest.mark.parametrize("factory", [BrokenBackend, lambda: 1 // 0], ids=["calls", "the factory"])
def test_a_broken_backend_fails_no_task_and_is_logged_once_as_a_warning(
    committed: Any, factory: Any, caplog: pytest.LogCaptureFixture
) -> None:
    small, result, _, report = committed
    stats.initialize(factory=factory, export_legacy_names=False)
    try:
        with caplog.at_level(logging.DEBUG, logger=metrics.log.name):
            assert operator(committed).execute("x") == "returned x"
            metrics.record_commit(small.lake, "small", result, report)
    finally:
        stats.initialize(factory=_nothing, export_legacy_names=False)
    levels = [r.levelno for r in caplog.records if r.name == metrics.log.name]
    assert levels[0] == logging.WARNING
    assert set(levels[1:]) == {logging.DEBUG}
    assert "secret" not in caplog.text


def _nothing() -> Any:
    from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger

    return NoStatsLogger()


@pytest.mark.parametrize("backend", ["statsd_on", "otel_on"])
def test_a_backend_that_is_not_there_fails_no_task(
    committed: Any, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    with configured(monkeypatch, **{backend: "True", "statsd_port": "1"}):
        for _ in range(3):
            assert operator(committed).execute("x") == "returned x"


def test_outside_of_a_task_a_store_is_not_wrapped() -> None:
    store = MemoryStore()
    assert metrics.counted(store) is store


def test_two_tasks_of_one_process_count_separately(
    committed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with statsd(monkeypatch) as sent:
        operator(committed).execute(None)
        operator(committed).execute(None)
        counts = [count for name, _, count, _ in sent.lines() if "requests" in name]
    assert counts == [1, 1, 1, 1]
