"""What is stale is told where it becomes so, and one run with mode=refresh replaces it."""

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
def looking(bench: Bench) -> Bench:
    lookback = Lookback(tables=["per_kind"], back=timedelta(days=2), uncommitted="stale")
    bench.pipeline = replace(bench.pipeline, lookback=lookback)
    return bench


def daily(number: int) -> FakeRun:
    return FakeRun(
        interval=days(number, number + 1), run_after=day(number + 1), run_id=f"day {number}"
    )


def test_a_commit_that_makes_others_stale_says_so_and_a_refresh_replaces_them(
    looking: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    def told() -> list[str]:
        lines = re.findall(r"warning +\] (.*?) \[airflow", capsys.readouterr().out)
        return [line for line in lines if "Task Runner" not in line]  # Airflow's own, in tests only

    looking.whole(daily(3))
    assert not told()
    looking.whole(daily(2))
    looking.whole(daily(1))
    shown = " ".join(told())
    assert shown.startswith("stale, for ")
    assert "[2013-01-02T00:00:00.000Z, 2013-01-03T00:00:00.000Z)" in shown
    assert "[2013-01-03T00:00:00.000Z, 2013-01-04T00:00:00.000Z)" in shown
    assert "one run with mode=refresh replaces them" in shown
    refresh = FakeRun(interval=None, run_after=NOW, run_id="refresh", params={"mode": "refresh"})
    looking.whole(refresh)
    assert len(refresh.told["plan"]["plans"]) == 2
    assert not stale(looking.lake.read(lambda snapshot: snapshot.whole_ledger().entries))
    assert not told()


def test_a_refresh_where_nothing_is_stale_starts_nothing(looking: Bench) -> None:
    run = FakeRun(interval=None, run_after=NOW, run_id="too early", params={"mode": "refresh"})
    run.execute(looking.task("plan"))
    assert run.told["plan"]["plans"] == []
    looking.whole(daily(1))
    again = FakeRun(interval=None, run_after=NOW, run_id="again", params={"mode": "refresh"})
    looking.whole(again)
    assert again.told["plan"]["plans"] == []


def test_clearing_a_stale_run_replaces_its_own_interval(looking: Bench) -> None:
    for number in (3, 2, 1):
        looking.whole(daily(number))
    cleared = daily(3)
    cleared.clear_number = 1
    looking.whole(cleared)
    left = stale(looking.lake.read(lambda snapshot: snapshot.whole_ledger().entries))
    assert set(left) == {days(2, 3)}
