"""The span of a run by hand: what Airflow's form proposes and infers is distinguished from what a person typed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.api.datamodels._generated import DagRunType
from airflow.sdk.exceptions import AirflowFailException

from support.small_lake import day, days
from tallystick.airflow.run import params_and_dates, span_of
from tallystick.errors import InvalidRequest
from tallystick.format.interval import Interval
from tallystick.operations.run_request import RunParams
from unit.airflow.bench import Bench, bench
from unit.airflow.runs import FakeRun

__all__ = ["bench"]

NOON = day(7) + timedelta(hours=12)
BY_HAND = [kind for kind in DagRunType if kind.value not in ("scheduled", "backfill")]


def run(kind: str = "manual", **given: Any) -> Any:
    dates = ("logical_date", "data_interval_start", "data_interval_end")
    return SimpleNamespace(
        **{"run_type": DagRunType(kind), "run_after": NOON, **dict.fromkeys(dates), **given}
    )


def interval(of: Interval) -> dict[str, datetime]:
    return {"data_interval_start": of.start, "data_interval_end": of.end}


def exact(at: datetime) -> dict[str, datetime]:
    """Return the dates that Airflow infers for a run by hand from a schedule of ours."""
    return {"logical_date": at, "data_interval_start": at, "data_interval_end": at}


SPAN = RunParams(start=day(1), end=day(3))


@pytest.mark.parametrize("kind", BY_HAND)
@pytest.mark.parametrize(
    ("dates", "until"),
    [
        ({}, NOON),
        # As the form proposes: the browser's current time, a little before the server's.
        (exact(NOON - timedelta(seconds=40)), NOON - timedelta(seconds=40)),
        (exact(day(3)), day(3)),
        # A date in the future, or a browser whose clock is ahead.
        (exact(NOON + timedelta(days=400)), NOON),
        # `airflow dags trigger --logical-date` and TriggerDagRunOperator infer from `run_after`.
        ({**exact(NOON), "logical_date": day(3)}, day(3)),
    ],
)
@pytest.mark.parametrize("infers", [False, True])
def test_run_by_hand_without_a_span_ends_at_its_logical_date_and_now_at_the_latest(
    kind: str, dates: dict[str, datetime], until: datetime, infers: bool
) -> None:
    params, found = params_and_dates(run(kind, **dates), RunParams(), infers=infers)
    assert params == RunParams()
    assert (found.data_interval, found.run_after) == (None, until)


def test_data_interval_that_a_person_typed_is_the_span() -> None:
    typed = {"logical_date": NOON, **interval(days(2, 4))}
    params, dates = params_and_dates(run(**typed), RunParams(mode="replace"))
    assert params == RunParams(mode="replace", start=day(2), end=day(4))
    assert dates.data_interval is None


@pytest.mark.parametrize("infers", [False, True])
def test_span_of_the_form_counts_for_any_logical_date(infers: bool) -> None:
    assert params_and_dates(run(**exact(NOON)), SPAN, infers=infers)[0] == SPAN
    same = {"logical_date": NOON, **interval(days(1, 3))}
    assert params_and_dates(run(**same), SPAN, infers=infers)[0] == SPAN


def test_two_spans_that_differ_are_refused_with_both() -> None:
    with pytest.raises(InvalidRequest, match=r"two spans.*01-01.*01-03.*01-02.*01-04"):
        params_and_dates(run(**interval(days(2, 4))), SPAN)


def test_interval_that_another_timetable_may_have_inferred_is_refused_and_the_forms_span_counts() -> (
    None
):
    inferred = {"logical_date": NOON, **interval(days(6, 7))}
    with pytest.raises(InvalidRequest, match="a person may have typed it, or Airflow inferred it"):
        params_and_dates(run(**inferred), RunParams(), infers=True)
    assert params_and_dates(run(**inferred), SPAN, infers=True)[0] == SPAN


def test_data_interval_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="is empty"):
        params_and_dates(run(data_interval_start=day(3), data_interval_end=day(2)), RunParams())


@pytest.mark.parametrize("kind", ["scheduled", "backfill"])
def test_runs_of_the_schedule_have_their_interval(kind: str) -> None:
    params, dates = params_and_dates(run(kind, **interval(days(2, 3))), RunParams(mode="replace"))
    assert params == RunParams(mode="replace")
    assert dates.data_interval == days(2, 3)


def test_backfill_with_a_span_in_its_parameters_is_refused() -> None:
    """Every run of the backfill would request the same span."""
    with pytest.raises(
        InvalidRequest, match=r"a backfill has the parameters.*same span"
    ) as refused:
        params_and_dates(run("backfill", **interval(days(2, 3))), SPAN)
    assert "`from` and `to` empty" in refused.value.hint


def test_backfill_that_took_over_a_run_by_hand_is_refused_with_a_hint() -> None:
    with pytest.raises(InvalidRequest, match="is empty") as refused:
        params_and_dates(run("backfill", **exact(day(5))), RunParams())
    assert "took over a manual run" in refused.value.hint


@pytest.mark.parametrize(
    ("kind", "dates", "span"),
    [
        ("manual", exact(day(3)), "everything new until 2013-01-03T00:00:00.000Z"),
        ("manual", interval(days(2, 3)), str(days(2, 3))),
        ("backfill", exact(day(3)), "[2013-01-03T00:00:00.000Z, 2013-01-03T00:00:00.000Z)"),
    ],
)
def test_errors_name_the_span_of_a_run_by_hand(
    kind: str, dates: dict[str, datetime], span: str
) -> None:
    assert span_of(run(kind, **dates), {}) == span


# ---------------------------------------------------------------- as a task


def by_hand(number: int, at: datetime, **params: Any) -> FakeRun:
    """Return a run that the Trigger form creates from its proposed values on a schedule of ours."""
    return FakeRun(
        interval=SimpleNamespace(start=at, end=at),  # type: ignore[arg-type]  (Interval refuses it)
        run_after=at + timedelta(seconds=1),
        logical_date=at,
        run_id=f"manual__{number}",
        run_type="manual",
        params=params,
    )


def test_trigger_as_the_form_proposes_takes_what_is_new_and_a_clear_of_it_asks_for_the_same(
    bench: Bench,
) -> None:
    bench.run_all(FakeRun(interval=days(1, 3), run_after=day(3)))
    pressed = by_hand(1, NOON)
    first = bench.run_all(pressed)
    assert first["interval"] == Interval(start=day(3), end=NOON).to_json()
    pressed.clear_number = 1
    root = bench.lake.load_existing().root
    assert bench.run_all(pressed)["interval"] == first["interval"]
    assert bench.lake.load_existing().root == root


def test_replace_as_the_form_proposes_and_without_a_span_is_refused(bench: Bench) -> None:
    bench.run_all(FakeRun(interval=days(1, 3), run_after=day(3)))
    before = bench.lake.load_existing().root
    with pytest.raises(AirflowFailException, match="mode=replace is set without dates"):
        bench.run_all(by_hand(1, NOON, mode="replace"))
    assert bench.lake.load_existing().root == before


def test_typed_data_interval_that_is_not_over_is_refused_and_not_waited_for(bench: Bench) -> None:
    future = Interval(start=day(1), end=datetime(2999, 1, 1, tzinfo=UTC))
    typed = FakeRun(interval=future, run_after=NOON, run_type="manual", run_id="manual__1")
    with pytest.raises(AirflowFailException, match="is later than"):
        bench.run_all(typed)
