"""A commit warns about the intervals that it makes stale, and one run with mode=refresh replaces them."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from support.small_lake import NOW, day, days
from tallystick.pipeline import Lookback
from tallystick.protocol.staleness import stale
from unit.airflow.bench import Bench, bench
from unit.airflow.runs import FakeRun

__all__ = ["bench"]


@pytest.fixture
def bench_with_lookback(bench: Bench) -> Bench:
    lookback = Lookback(tables=["per_kind"], back=timedelta(days=2), uncommitted="stale")
    bench.pipeline = replace(bench.pipeline, lookback=lookback)
    return bench


def daily(number: int) -> FakeRun:
    return FakeRun(
        interval=days(number, number + 1), run_after=day(number + 1), run_id=f"day {number}"
    )


def test_a_commit_warns_about_intervals_that_it_makes_stale_and_a_refresh_replaces_them(
    bench_with_lookback: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    def warnings() -> list[str]:
        lines = re.findall(r"warning +\] (.*?) \[airflow", capsys.readouterr().out)
        return [
            line for line in lines if "Task Runner" not in line
        ]  # Airflow logs these in tests only

    bench_with_lookback.run_all(daily(3))
    assert not warnings()
    bench_with_lookback.run_all(daily(2))
    bench_with_lookback.run_all(daily(1))
    shown = " ".join(warnings())
    assert shown.startswith("stale, because ")
    assert "[2013-01-02T00:00:00.000Z, 2013-01-03T00:00:00.000Z)" in shown
    assert "[2013-01-03T00:00:00.000Z, 2013-01-04T00:00:00.000Z)" in shown
    assert "one run with mode=refresh replaces them" in shown
    refresh = FakeRun(interval=None, run_after=NOW, run_id="refresh", params={"mode": "refresh"})
    bench_with_lookback.run_all(refresh)
    assert len(refresh.returned["plan"]["plans"]) == 2
    assert not stale(
        bench_with_lookback.lake.read(lambda snapshot: snapshot.whole_ledger().entries)
    )
    assert not warnings()


def test_a_refresh_without_stale_intervals_starts_nothing(bench_with_lookback: Bench) -> None:
    run = FakeRun(interval=None, run_after=NOW, run_id="too early", params={"mode": "refresh"})
    run.execute(bench_with_lookback.task("plan"))
    assert run.returned["plan"]["plans"] == []
    bench_with_lookback.run_all(daily(1))
    again = FakeRun(interval=None, run_after=NOW, run_id="again", params={"mode": "refresh"})
    bench_with_lookback.run_all(again)
    assert again.returned["plan"]["plans"] == []


def test_clearing_a_stale_run_replaces_its_own_interval(bench_with_lookback: Bench) -> None:
    for number in (3, 2, 1):
        bench_with_lookback.run_all(daily(number))
    cleared = daily(3)
    cleared.clear_number = 1
    bench_with_lookback.run_all(cleared)
    left = stale(bench_with_lookback.lake.read(lambda snapshot: snapshot.whole_ledger().entries))
    assert set(left) == {days(2, 3)}
