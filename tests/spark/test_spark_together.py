"""A driver that also stages plans of other runs: its own run's result never depends on them. No JVM is started."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.fakes import stage
from support.small_lake import SmallLake, days
from tallystick.errors import KafkaUnavailable
from tallystick.format import keys
from tallystick.format.plan import Plan
from tallystick.format.report import Report
from tallystick.lake import Lake
from tallystick.operations.stage_together import claim
from tallystick.spark import together
from tallystick.spark.entry import run_job
from tallystick.spark.order import Order
from tallystick.store.memory import MemoryStore
from tallystick.store.open import open_store

SPANS = (days(1, 2), days(2, 3), days(3, 4), days(6, 7))


@dataclass
class Driver:
    """A lake with a granted plan per span. A substitute for Spark stages; `before` may raise or change something."""

    folder: Path
    before: Callable[[Plan], None] = lambda _: None
    staged: list[keys.PlanKey] = field(default_factory=list)

    def __post_init__(self) -> None:
        store = open_store("memory://together")
        assert isinstance(store, MemoryStore)
        store.delete([listed.key for listed in store.list("")])
        self.small = SmallLake(store=store)
        self.plans = [self.plan(span) for span in SPANS[:3]]
        self.job = self.folder / "job.py"
        self.job.write_bytes(self.small.job)
        self.result = self.folder / "result.json"

    def plan(self, span: Any, **options: Any) -> Plan:
        (one,) = self.small.plan(span, **options).intervals
        plan = self.small.lake.plan(one.plan)
        assert plan is not None
        return plan

    def _stage(self, lake: Lake, order: Order, _: Any, __: Sequence[Any]) -> Report:
        plan = order.target.plan
        self.before(plan)
        key = stage(lake, self.small.log, plan.key, attempt=f"{order.target.attempt}x")
        report = lake.report(key)
        assert report is not None
        lake.store.delete([key])
        self.staged.append(plan.key)
        return report

    def run(self, *, others: Sequence[Plan] = (), others_max: int = 8) -> int:
        own = self.plans[0]
        argv = ["--plan", f"memory://together/{own.key}@{own.sha256}", "--attempt", "try-1"]
        for other in others:
            argv += ["--other", f"memory://together/{other.key}@{other.sha256}"]
        environ = {
            "TALLYSTICK_RESULT_FILE": str(self.result),
            "TALLYSTICK_KAFKA_DEFAULT": '{"bootstrap_servers": "nowhere:9092"}',
        }
        argv += ["--others-max", str(others_max)]
        return run_job(lambda r: r, argv, environ=environ, job=self.job, staging=self._stage)

    def reports(self) -> dict[str, list[str]]:
        return {p.key: self.small.keys(f"attempts/{p.interval.part}/") for p in self.plans}

    def outcome(self) -> list[str]:
        return [one["plan"] for one in json.loads(self.result.read_text())]


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path)


def test_it_stages_the_claimed_plans_and_then_all_that_it_finds(driver: Driver) -> None:
    own, claimed, found = driver.plans
    claim(driver.small.lake, claimed, own.request, "try-1")

    def plan_one_more(plan: Plan) -> None:
        if plan.key == found.key:
            driver.plans.append(driver.plan(SPANS[3]))

    driver.before = plan_one_more
    assert driver.run(others=[claimed]) == 0
    assert driver.staged == [p.key for p in driver.plans]
    assert len(driver.staged) == 4
    assert driver.outcome() == [own.key]
    reports = driver.reports()
    for plan in driver.plans[1:]:
        assert reports[plan.key] == [keys.claimed_report(plan.key, "try-1")]


def test_it_stages_no_more_than_it_may(driver: Driver) -> None:
    assert driver.run(others_max=1) == 0
    assert len(driver.staged) == 2


def test_it_stages_only_its_own_plans_without_the_option(driver: Driver) -> None:
    assert driver.run(others_max=0) == 0
    assert driver.staged == [driver.plans[0].key]
    assert not driver.small.keys("claims/")


@pytest.mark.parametrize("error", [KafkaUnavailable("away.", hint="wait."), ValueError("bad data")])
def test_an_error_of_another_runs_plan_is_logged_and_ends_the_search(
    driver: Driver, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(plan: Plan) -> None:
        if plan.key == driver.plans[1].key:
            raise error

    driver.before = fail
    with caplog.at_level("WARNING"):
        assert driver.run() == 0
    assert driver.outcome() == driver.staged == [driver.plans[0].key]
    assert "not staged for another run" in caplog.text
    assert type(error).__name__ in caplog.text or str(error) in caplog.text


def test_a_kill_while_it_stages_for_others_leaves_the_result_of_its_own_run(driver: Driver) -> None:
    def kill(plan: Plan) -> None:
        if plan.key != driver.plans[0].key:
            raise KeyboardInterrupt

    driver.before = kill
    with pytest.raises(KeyboardInterrupt):
        driver.run()
    assert driver.outcome() == [driver.plans[0].key]


def test_a_plan_that_lost_its_grant_is_left_out_and_the_next_is_staged(driver: Driver) -> None:
    own, lost, last = driver.plans
    for plan in (lost, last):
        claim(driver.small.lake, plan, own.request, "try-1")
    driver.plan(lost.interval, run="taker", take_over=True)
    assert driver.run(others=[lost, last], others_max=2) == 0
    assert driver.staged == [own.key, last.key]


def test_after_some_time_it_begins_no_further_plan(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "OTHERS_S", -1.0)
    assert driver.run() == 0
    assert driver.staged == [driver.plans[0].key]
