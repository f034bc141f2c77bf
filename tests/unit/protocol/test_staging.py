"""Which plans of other runs an attempt may stage as well, and which run may use the report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tallystick.format.plan import Plan
from tallystick.protocol import staging
from unit.format.samples import SAMPLE_CLAIM, SAMPLE_PLAN, SAMPLE_REPORT, plan_key, request

OWN = replace(SAMPLE_PLAN, request=request("r1"))
OTHER = replace(OWN, key=plan_key(0, 1, 2), request=request("r2"))


def with_offsets(plan: Plan, count: int) -> Plan:
    (first, *_) = plan.topics[0].ranges
    end = first.readable_from + count
    ranges = (replace(first, end=end),)
    return replace(plan, topics=(replace(plan.topics[0], ranges=ranges),))


def test_a_plan_of_another_run_with_the_same_job_can_join() -> None:
    assert staging.can_join(OWN, OTHER)
    assert staging.can_join(OWN, replace(OTHER, request=request("r2", 3)))


@pytest.mark.parametrize(
    "changed",
    [
        {"request": request("r1", 1)},
        {"request": replace(request("r2"), dag="another")},
        {"fingerprint": "another"},
        {"pipeline": "another"},
        {"spec": {**OWN.spec, "kafka": "another"}},
    ],
)
def test_a_plan_of_another_dag_job_or_connection_or_of_the_own_run_cannot(
    changed: dict[str, Any],
) -> None:
    assert not staging.can_join(OWN, replace(OTHER, **changed))


@pytest.mark.parametrize(
    ("count", "small"), [(0, True), (staging.OFFSETS_MAX, True), (staging.OFFSETS_MAX + 1, False)]
)
def test_a_large_plan_cannot_join(count: int, small: bool) -> None:
    plan = with_offsets(OTHER, count)
    assert staging.offsets(plan) == count
    assert staging.is_small(plan) is small
    assert staging.can_join(OWN, plan) is small


def test_a_plan_with_a_lookback_cannot_join() -> None:
    back = {**OWN.spec, "lookback": {"tables": ["t"], "back_s": 60}}
    assert not staging.can_join(replace(OWN, spec=back), replace(OTHER, spec=back))


def test_a_run_that_was_cleared_after_its_plan_was_made_may_not_use_the_report() -> None:
    assert staging.may_use(OWN, request("r1"))
    assert not staging.may_use(OWN, request("r1", 1))
    assert not staging.may_use(OWN, request("r2"))


def test_a_claim_of_the_own_run_is_of_no_other_run() -> None:
    claim = replace(SAMPLE_CLAIM, plan=OWN.key, request=request("r1", 2))
    assert not staging.is_of_another_run(claim, OWN)
    assert staging.is_of_another_run(claim, OTHER)


@pytest.mark.parametrize(
    "changed",
    [
        {"plan": plan_key(0, 1, 9)},
        {"plan_sha256": "0" * 64},
        {"fingerprint": "another"},
        {"attempt": "attempt-2"},
    ],
)
def test_only_the_report_that_the_claim_announced_is_used(changed: dict[str, Any]) -> None:
    claim = replace(SAMPLE_CLAIM, plan=SAMPLE_PLAN.key, attempt=SAMPLE_REPORT.attempt)
    assert staging.is_claimed_report(SAMPLE_PLAN, claim, SAMPLE_REPORT)
    assert not staging.is_claimed_report(SAMPLE_PLAN, claim, replace(SAMPLE_REPORT, **changed))


def test_a_claim_of_another_plan_announces_nothing() -> None:
    claim = replace(SAMPLE_CLAIM, plan=plan_key(0, 1, 9), attempt=SAMPLE_REPORT.attempt)
    assert not staging.is_claimed_report(SAMPLE_PLAN, claim, SAMPLE_REPORT)
