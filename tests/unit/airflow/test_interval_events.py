"""Events per interval: one when an interval is committed, one when it is replaced, none for a retry or a cleared task."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

from support.small_lake import days, pipeline
from tallystick.airflow import interval_events
from tallystick.airflow.assets import (
    GROUP,
    asset_of,
    committed_intervals,
    interval_asset_of,
    partition_key,
)
from tallystick.airflow.interval_events import events_since
from tallystick.errors import StoreUnavailable
from tallystick.format.interval import Interval
from unit.airflow.bench import Bench, bench
from unit.airflow.runs import AirflowEvents, FakeRun

__all__ = ["bench"]

# kafka-python reads its schemas in a way that Python 3.11 (not 3.13) calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")

FIRST, SECOND = "2013-01-01T00:00:00", "2013-01-02T00:00:00"


def run_of(interval: Interval, **options: Any) -> FakeRun:
    return FakeRun(interval=interval, run_after=interval.end, **options)


def generations(bench: Bench, events: AirflowEvents) -> list[tuple[str, int]]:
    """Return (partition key, generation) of each event per interval, in the order in which they were emitted."""
    found = events.keys(interval_asset_of(bench.pipeline))
    assert all(key is not None for key, _ in found)
    return [(str(key), extra["intervals"][key]["generation"]) for key, extra in found]


def test_each_committed_interval_has_an_event_with_its_start_as_the_key(
    bench: Bench, airflow_events: AirflowEvents
) -> None:
    returned = bench.run_all(run_of(days(1, 2)))
    bench.run_all(run_of(days(2, 3), run_id="scheduled__2"))
    assert generations(bench, airflow_events) == [(FIRST, 1), (SECOND, 1)]
    (key, extra), _ = airflow_events.keys(interval_asset_of(bench.pipeline))
    assert (key, extra) == (
        FIRST,
        {
            "pipeline": "small",
            "version": returned["version"],
            "intervals": {FIRST: {"interval": days(1, 2).to_json(), "generation": 1}},
        },
    )
    # The first commit reads no events, so it costs no request.
    assert airflow_events.reads == []


def test_a_commit_killed_before_its_success_emits_its_events_in_the_next_try(
    bench: Bench, airflow_events: AirflowEvents
) -> None:
    run = run_of(days(1, 2))
    run.execute(bench.task("plan"))
    bench.stage(run)
    killed = bench.task("commit")
    killed.execute(run.context("commit"))  # the swap, and no success
    assert airflow_events.stored == []
    run.execute(bench.task("commit"))
    assert generations(bench, airflow_events) == [(FIRST, 1)]


@pytest.mark.parametrize("task", ["commit", "stage", "plan"])
def test_a_cleared_task_emits_no_event_for_what_has_one(
    bench: Bench, airflow_events: AirflowEvents, task: str
) -> None:
    run = run_of(days(1, 2))
    bench.run_all(run)
    if task == "plan":
        run.clear_number = 1
        run.execute(bench.task("plan"))
    if task != "commit":
        bench.stage(run)
    run.execute(bench.task("commit"))
    assert generations(bench, airflow_events) == [(FIRST, 1)]
    assert len(airflow_events.keys(asset_of(bench.pipeline))) == 2  # that one is emitted again


def test_a_replaced_interval_has_another_event_with_the_next_generation(
    bench: Bench, airflow_events: AirflowEvents
) -> None:
    bench.run_all(run_of(days(1, 2)))
    bench.deploy("version 2")
    again = run_of(days(1, 2), clear_number=1)
    bench.run_all(again)
    by_hand = run_of(
        days(1, 2),
        run_id="manual__1",
        params={"mode": "replace", "from": FIRST, "to": SECOND, "force": True},
    )
    bench.run_all(by_hand)
    assert generations(bench, airflow_events) == [(FIRST, 1), (FIRST, 2), (FIRST, 3)]


def test_a_run_of_several_intervals_emits_those_that_it_committed_and_no_others(
    bench: Bench, airflow_events: AirflowEvents
) -> None:
    bench.run_all(run_of(days(2, 3), run_id="scheduled__2"))
    whole = run_of(days(1, 4), run_id="backfill__1")
    bench.run_all(whole)
    whole.execute(bench.task("commit"))
    assert sorted(generations(bench, airflow_events)) == [
        (FIRST, 1),
        (SECOND, 1),
        ("2013-01-03T00:00:00", 1),
    ]


def test_a_run_whose_interval_others_committed_emits_none(
    bench: Bench, airflow_events: AirflowEvents
) -> None:
    bench.run_all(run_of(days(1, 2)))
    bench.run_all(run_of(days(1, 2), run_id="manual__1"))
    assert generations(bench, airflow_events) == [(FIRST, 1)]


def test_events_that_cannot_be_read_are_emitted_again_with_the_same_generation(
    bench: Bench,
    airflow_events: AirflowEvents,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = run_of(days(1, 2))
    bench.run_all(run)

    def refuse(_: object) -> None:
        raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR))

    monkeypatch.setattr(airflow_events, "send", refuse)
    run.execute(bench.task("commit"))
    assert generations(bench, airflow_events) == [(FIRST, 1), (FIRST, 1)]
    logged = " ".join(" ".join(r.getMessage() for r in caplog.records).split())
    assert "cannot be read, so they are emitted again" in logged


def test_a_store_that_fails_while_events_are_compared_is_retried_with_its_reason(
    bench: Bench, airflow_events: AirflowEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(days(1, 2))
    bench.run_all(run)

    def fail(*_: object) -> None:
        raise StoreUnavailable("the store did not answer.", hint="it is retried.")

    with monkeypatch.context() as patch:
        patch.setattr(interval_events, "_emitted", fail)
        with pytest.raises(AirflowException, match=r"did not answer.* Next: it is retried"):
            run.execute(bench.task("commit"))
    assert run.pushed["commit", "error"]["kind"] == "store_unavailable"
    run.execute(bench.task("commit"))
    assert generations(bench, airflow_events) == [(FIRST, 1)]


def test_events_are_read_in_pages_and_no_page_is_read_for_ever(
    airflow_events: AirflowEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interval_events, "PAGE_MAX", 3)
    asset = interval_asset_of(pipeline("s3://lake/small"))
    start = datetime(2013, 1, 1, tzinfo=UTC)
    for number in range(8):
        airflow_events.add(asset, "r", None, str(number), at=start + timedelta(seconds=number))
    assert {e.partition_key for e in events_since(asset, start)} == {str(n) for n in range(8)}
    # More events than a page have one time: the last page is read once more, and not again.
    for number in range(8, 20):
        airflow_events.add(asset, "r", None, str(number), at=start + timedelta(seconds=9))
    airflow_events.reads.clear()
    assert len(list(events_since(asset, start))) >= 9
    assert len(airflow_events.reads) < 8


def test_a_consumer_reads_the_newest_commit_of_each_interval_of_its_run(
    bench: Bench, airflow_events: AirflowEvents
) -> None:
    bench.run_all(run_of(days(1, 3)))
    bench.deploy("version 2")
    bench.run_all(run_of(days(1, 3), clear_number=1))
    asset = interval_asset_of(bench.pipeline)
    caused_by = [e for e in airflow_events.stored if e.asset.name == asset.name]
    others = [e for e in airflow_events.stored if e.asset.name != asset.name]
    context = {"triggering_asset_events": {asset: caused_by, "another": others}}
    found = committed_intervals(context)
    assert {(c.pipeline, c.interval) for c in found} == {
        ("small", e.interval) for e in bench.lake.load_existing().whole_ledger().entries
    }
    assert [c.generation for c in found] == [2]
    assert committed_intervals({"triggering_asset_events": {}}) == ()


@pytest.mark.parametrize(
    ("start", "key"),
    [
        (datetime(2013, 1, 1, 5, tzinfo=UTC), "2013-01-01T05:00:00"),
        (datetime(2013, 1, 1, 5, 6, 7, 89000, tzinfo=UTC), "2013-01-01T05:06:07.089"),
        (datetime(2013, 1, 1, 5, 6, 7, 100000, tzinfo=UTC), "2013-01-01T05:06:07.100"),
    ],
)
def test_a_key_has_the_form_that_airflows_mappers_read(start: datetime, key: str) -> None:
    from airflow.partition_mappers.temporal import StartOfDayMapper

    assert partition_key(start) == key
    if not start.microsecond:
        assert StartOfDayMapper().to_downstream(key) == "2013-01-01"


def test_both_assets_belong_to_the_pages_of_the_pipeline_and_have_different_names() -> None:
    small = pipeline("s3://lake/small")
    both = asset_of(small), interval_asset_of(small)
    assert len({a.name for a in both}) == len({a.uri for a in both}) == 2
    assert {a.group for a in both} == {GROUP}


def test_a_consumer_whose_events_have_no_partition_reads_nothing() -> None:
    event = SimpleNamespace(partition_key=None, extra={"version": 1})
    assert committed_intervals({"triggering_asset_events": {"a": [event]}}) == ()
