"""The pipeline of a plan is parsed once per process, and a plan never gets the pipeline of another one."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from tallystick.errors import InvalidPipeline
from tallystick.format.plan import Plan
from tallystick.pipeline import Column, Pipeline, Table
from tallystick.spark import order
from tallystick.spark.order import pipeline_of
from unit.format.samples import SAMPLE_PLAN, plan_key


def plan(number: int, job: str = "jobs/a.py") -> Plan:
    """Return a plan of a small pipeline, with the key of that number."""
    declared = Pipeline(
        name="p",
        topics=["t"],
        warehouse="memory://lake/p",
        job=job,
        tables=[Table("rows", columns=[Column("n", "long")])],
    )
    return replace(SAMPLE_PLAN, key=plan_key(0, 1, number), spec=declared.to_spec())


def test_each_task_of_a_plan_gets_the_same_pipeline() -> None:
    """Spark sends each task a copy of the plan."""
    first = pipeline_of(plan(1))
    assert pipeline_of(copy.deepcopy(plan(1))) is first
    assert first.job == "jobs/a.py"


def test_a_plan_has_its_own_pipeline_also_if_its_key_is_that_of_another() -> None:
    assert pipeline_of(plan(2, "jobs/a.py")).job == "jobs/a.py"
    assert pipeline_of(plan(2, "jobs/b.py")).job == "jobs/b.py"
    assert pipeline_of(plan(3, "jobs/c.py")).job == "jobs/c.py"
    assert pipeline_of(plan(2, "jobs/a.py")).job == "jobs/a.py"


def test_only_the_last_pipelines_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "_PARSED_MAX", 2)
    first = pipeline_of(plan(4))
    pipeline_of(plan(5))
    assert pipeline_of(plan(4)) is first
    pipeline_of(plan(6))
    pipeline_of(plan(7))
    assert pipeline_of(plan(4)) is not first
    assert len(order._parsed) == 2


def test_a_plan_whose_pipeline_is_not_valid_is_not_kept() -> None:
    broken = replace(plan(8), spec={"format": "other"})
    for _ in range(2):
        with pytest.raises(InvalidPipeline, match="expected spec format"):
            pipeline_of(broken)
