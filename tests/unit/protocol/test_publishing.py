"""The slot of an output for an interval: each has one next step, and steps against the rules are refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import InvalidPipeline
from tallystick.format.outputs import OutputSlot, check_slots
from tallystick.protocol.publishing import (
    Rest,
    Resume,
    Start,
    finished,
    in_progress,
    next_step,
    outputs_with_plan,
    slot_problem,
    with_plan,
)
from unit.format.samples import plan_key, slots, uuid

P1, P2, P3 = uuid(1), uuid(2), uuid(3)


@pytest.mark.parametrize(
    ("slot", "step"),
    [
        (OutputSlot(wanted=P1), Start(plan=P1, instead_of=None)),
        (OutputSlot(wanted=P1, in_progress=P1), Resume(plan=P1, instead_of=None)),
        (OutputSlot(wanted=P1, published=P1), Rest()),
        (OutputSlot(wanted=P2, published=P1), Start(plan=P2, instead_of=P1)),
        (OutputSlot(wanted=P2, in_progress=P2, published=P1), Resume(plan=P2, instead_of=P1)),
        # Replaced while it was in progress: the publication in progress ends first.
        (OutputSlot(wanted=P3, in_progress=P2, published=P1), Resume(plan=P2, instead_of=P1)),
        (OutputSlot(wanted=P2, in_progress=P1), Resume(plan=P1, instead_of=None)),
    ],
)
def test_each_slot_has_one_next_step(slot: OutputSlot, step: object) -> None:
    assert next_step(slot) == step
    assert slot.pending is not isinstance(step, Rest)


@given(slots)
def test_following_the_steps_publishes_the_wanted_plan(slot: OutputSlot) -> None:
    """From any slot, at most two publications. Each is started first, and the rows that it reads are kept."""
    published: list[str] = []
    for _ in range(3):
        step = next_step(slot)
        if isinstance(step, Rest):
            break
        assert {step.plan, *([step.instead_of] if step.instead_of else [])} <= slot.needed
        started = in_progress(slot, step.plan)
        assert started is not None
        assert slot_problem(slot, started, None) is None
        slot = started
        assert next_step(slot) == Resume(plan=step.plan, instead_of=step.instead_of)
        ended = finished(slot, step.plan)
        assert ended is not None
        assert slot_problem(slot, ended, None) is None
        slot = ended
        assert finished(slot, step.plan) == slot  # a repeat changes nothing
        published.append(step.plan)
    assert slot.published == slot.wanted
    assert not slot.pending
    assert not slot.needed
    assert len(published) <= 2


def test_only_the_next_step_can_begin() -> None:
    assert in_progress(OutputSlot(wanted=P2), P1) is None
    assert in_progress(OutputSlot(wanted=P2, in_progress=P1), P2) is None
    assert in_progress(OutputSlot(wanted=P1, published=P1), P1) is None
    assert in_progress(OutputSlot(wanted=P1, in_progress=P1), P1) == OutputSlot(
        wanted=P1, in_progress=P1
    )


def test_only_a_publication_in_progress_can_finish() -> None:
    assert finished(OutputSlot(wanted=P1), P1) is None
    assert finished(OutputSlot(wanted=P2, in_progress=P2), P1) is None


@pytest.mark.parametrize(
    ("slot", "nothing", "then"),
    [
        (None, False, OutputSlot(wanted=P3)),
        (None, True, OutputSlot(wanted=P3, published=P3)),
        (OutputSlot(wanted=P1), False, OutputSlot(wanted=P3)),
        (OutputSlot(wanted=P1), True, OutputSlot(wanted=P3, published=P3)),
        # Something was sent, or may have been: the empty generation has to withdraw it.
        (OutputSlot(wanted=P1, in_progress=P1), True, OutputSlot(wanted=P3, in_progress=P1)),
        (OutputSlot(wanted=P1, published=P1), True, OutputSlot(wanted=P3, published=P1)),
        (OutputSlot(wanted=P2, in_progress=P1), False, OutputSlot(wanted=P3, in_progress=P1)),
    ],
)
def test_a_commit_changes_the_wanted_plan_and_not_what_is_published(
    slot: OutputSlot | None, nothing: bool, then: OutputSlot
) -> None:
    assert with_plan(slot, P3, nothing=nothing) == then
    assert slot_problem(slot, then, P3) is None
    assert then.may_have_rows is (slot is not None and slot.may_have_rows) or nothing


def test_a_commit_leaves_the_slots_of_outputs_that_its_plan_does_not_name() -> None:
    other = OutputSlot(wanted=P1, in_progress=P1)
    assert outputs_with_plan({"other": other}, plan_key(0, 1, 3), {"feed": False}) == {
        "other": other,
        "feed": OutputSlot(wanted=P3),
    }


@pytest.mark.parametrize(
    ("was", "now", "committed", "problem"),
    [
        (None, None, None, None),
        (OutputSlot(wanted=P1), None, None, "vanished"),
        (None, OutputSlot(wanted=P1), None, "without a commit"),
        (None, OutputSlot(wanted=P1), P2, "without a commit"),
        (OutputSlot(wanted=P1), OutputSlot(wanted=P1, published=P1), None, "went from"),
        (OutputSlot(wanted=P1), OutputSlot(wanted=P2), None, "went from"),
        (OutputSlot(wanted=P1), OutputSlot(wanted=P1, in_progress=P2), None, "went from"),
        (OutputSlot(wanted=P1, in_progress=P1), OutputSlot(wanted=P1), None, "went from"),
        (OutputSlot(wanted=P1, in_progress=P1), OutputSlot(wanted=P2), P2, "went from"),
        (
            OutputSlot(wanted=P2, published=P1),
            OutputSlot(wanted=P2, in_progress=P1, published=P3),
            None,
            "went from",
        ),
    ],
)
def test_a_step_against_the_rules_is_reported(
    was: OutputSlot | None, now: OutputSlot | None, committed: str | None, problem: str | None
) -> None:
    found = slot_problem(was, now, committed)
    assert found is None if problem is None else problem in (found or "")


@given(st.lists(st.sampled_from("cbf"), max_size=12))
def test_no_order_of_steps_breaks_a_rule_or_publishes_a_plan_twice(steps: list[str]) -> None:
    """Commits, starts and ends in any order, as by several processes: the rules hold after each step."""
    slot, number = with_plan(None, uuid(1), nothing=False), itertools.count(2)
    out: list[str] = []
    for step in steps:
        was, committed = slot, None
        if step == "c":
            committed = uuid(next(number))
            slot = with_plan(slot, committed, nothing=False)
        elif step == "b":
            slot = in_progress(slot, slot.wanted) or slot
        else:
            slot = finished(slot, slot.in_progress) or slot if slot.in_progress else slot
            out += [slot.published] if slot != was and slot.published else []
        assert slot_problem(was, slot, committed) is None
    assert len(set(out)) == len(out)


def test_an_output_name_follows_the_rules_of_names() -> None:
    check_slots({"feed": 1})
    with pytest.raises(InvalidPipeline, match="output name 'Feed' is not allowed"):
        check_slots({"Feed": 1})
