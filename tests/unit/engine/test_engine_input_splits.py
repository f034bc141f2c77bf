"""Input splits of a plan: every readable offset is in exactly one split, and the splits are always the same."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tallystick.engine.input_splits import InputSplit, split_plan
from tallystick.format.offsets import EPOCH_UNKNOWN, OffsetRange, tile


@pytest.mark.parametrize(
    ("start", "end", "limit", "expected"),
    [
        (0, 0, 10, []),
        (7, 8, 10, [(7, 8)]),
        (0, 10, 10, [(0, 10)]),
        (0, 11, 10, [(0, 5), (5, 11)]),
        (5, 36, 10, [(5, 12), (12, 20), (20, 28), (28, 36)]),
        (0, 3, 1, [(0, 1), (1, 2), (2, 3)]),
    ],
)
def test_a_range_is_divided_evenly_into_as_few_splits_as_the_limit_allows(
    kit: SimpleNamespace, start: int, end: int, limit: int, expected: list[tuple[int, int]]
) -> None:
    plan = kit.plan_of(kit.small_pipeline(), ("events", [kit.planned(start, end)]))
    splits = split_plan(plan, records_per_task=limit)
    assert [(p.span.start, p.span.end) for p in splits] == expected
    assert [p.index for p in splits] == list(range(len(expected)))
    assert [InputSplit.from_json(p.to_json(), "here") for p in splits] == list(splits)


def test_an_epoch_belongs_to_the_start_of_a_planned_range_only(kit: SimpleNamespace) -> None:
    plan = kit.plan_of(kit.small_pipeline(), ("events", [kit.planned(0, 30)]))
    epochs = [p.start_epoch for p in split_plan(plan, records_per_task=10)]
    assert epochs == [4, EPOCH_UNKNOWN, EPOCH_UNKNOWN]


def test_lost_offsets_are_not_read_and_leave_no_epoch_to_check(kit: SimpleNamespace) -> None:
    ranges = [kit.planned(0, 30, readable_from=20), kit.planned(0, 30, readable_from=30)]
    plan = kit.plan_of(kit.small_pipeline(), ("events", ranges))
    [split] = split_plan(plan, records_per_task=100)
    assert (split.partition, split.span) == (0, OffsetRange(start=20, end=30))
    assert split.start_epoch == EPOCH_UNKNOWN


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # it contains functions only
@given(
    ranges=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 500)), min_size=1, max_size=5),
    limit=st.integers(1, 60),
)
def test_splits_tile_the_readable_offsets(
    ranges: list[tuple[int, int]], limit: int, kit: SimpleNamespace
) -> None:
    spans = [OffsetRange(start=start, end=start + length) for start, length in ranges]
    plan = kit.plan_of(
        kit.small_pipeline(), ("events", [kit.planned(s.start, s.end) for s in spans])
    )
    splits = split_plan(plan, records_per_task=limit)
    assert splits == split_plan(plan, records_per_task=limit)
    for number, span in enumerate(spans):
        of_partition = [p.span for p in splits if p.partition == number]
        assert len(of_partition) == -(-span.length // limit)
        assert not of_partition or tile(of_partition) == span


def test_an_empty_span_is_refused() -> None:
    with pytest.raises(ValueError, match="expected an input split"):
        InputSplit(index=0, topic="t", partition=0, span=OffsetRange(start=3, end=3))
