"""What the outcome of a driver must be."""

from __future__ import annotations

from typing import Any

import pytest

from tallystick.format import keys
from tallystick.format.outcome import OutcomeError, OutcomePlan, StageOutcome
from unit.format.samples import SAMPLE_REPORT, plan_key

PLAN = OutcomePlan(plan=keys.check_plan(plan_key(0, 1)), report=SAMPLE_REPORT.key)
ERROR = OutcomeError(kind="error", message="a.", hint="b.")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"plans": (PLAN,), "error": ERROR}, "either plans or an error"),
        ({}, "either plans or an error"),
        ({"plans": (PLAN, PLAN)}, "expected each plan once"),
        ({"plans": (PLAN,), "attempt": "../a"}, "attempt"),
    ],
)
def test_an_outcome_has_plans_or_an_error(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        StageOutcome(**{"attempt": "a1", **wrong})


@pytest.mark.parametrize(
    "wrong", [{"plan": "root.json", "report": None}, {"plan": PLAN.plan, "report": "root.json"}]
)
def test_an_outcome_names_plans_and_reports(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        OutcomePlan(**wrong)
