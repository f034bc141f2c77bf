"""Input splits of a plan: every readable offset is in exactly one split, and the splits are always the same."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tallystick.engine.input_splits import (
    TASK_OFFSETS_MIN,
    InputSplit,
    grouped,
    split_plan,
)
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


def splits_of(*lengths: int) -> list[InputSplit]:
    """Return a split of each length, of as many partitions."""
    return [
        InputSplit(index=number, topic="t", partition=number, span=OffsetRange(start=0, end=length))
        for number, length in enumerate(lengths)
    ]


@pytest.mark.parametrize(
    ("lengths", "records_per_task", "tasks"),
    [
        ([], 500_000, 0),
        ([1], 500_000, 1),
        # 8 partitions of a small interval, and 1,000 of a large topic: a task costs more than their records.
        ([2_500] * 8, 500_000, 1),
        ([1_000] * 1_000, 500_000, 20),
        ([TASK_OFFSETS_MIN] * 3, 500_000, 3),
        ([TASK_OFFSETS_MIN // 2, TASK_OFFSETS_MIN // 2 + 1], 500_000, 2),
        # A large split stays a task of its own.
        ([500_000] * 4, 500_000, 4),
        # Who wants tasks of a few records gets them.
        ([100, 100, 100, 99], 100, 4),
        ([100, 100, 1, 1], 100, 3),
    ],
)
def test_small_splits_share_a_task(lengths: list[int], records_per_task: int, tasks: int) -> None:
    assert len(grouped(splits_of(*lengths), records_per_task=records_per_task)) == tasks


def test_large_splits_share_no_task_however_many_small_ones_there_are() -> None:
    splits = splits_of(*[100] * 1_000, *[500_000] * 10)
    groups = grouped(splits, records_per_task=500_000)
    assert [len(group) for group in groups] == [500, 500, *[1] * 10]


@given(st.lists(st.integers(1, 200_000), max_size=40), st.integers(1, 400_000))
def test_each_split_is_in_one_task_which_is_small_or_has_no_other(
    lengths: list[int], records_per_task: int
) -> None:
    splits = splits_of(*lengths)
    groups = grouped(splits, records_per_task=records_per_task)
    assert [split for group in groups for split in group] == splits
    most = min(TASK_OFFSETS_MIN, records_per_task)
    assert all(len(g) == 1 or sum(s.span.length for s in g) <= most for g in groups)
