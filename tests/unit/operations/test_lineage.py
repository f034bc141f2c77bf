"""The lineage of commits: offsets, tables and snapshots, the same whenever it is read."""

from __future__ import annotations

from datetime import timedelta

import pytest

from support.small_lake import (
    NOW,
    TOPIC,
    SmallLake,
    adopted,
    day,
    days,
    good_lake,
    pipeline,
    refill,
)
from tallystick.errors import Corrupt
from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.operations.lineage import (
    CommitLineage,
    TableWritten,
    TopicRead,
    all_tables,
    all_topics,
    read_commit,
)
from tallystick.pipeline import DEAD_LETTERS, Lookback, Pipeline
from tallystick.tables.reading import live_files, static_table


def committed(
    small: SmallLake, interval: Interval, *, clear: int = 0, job: bytes = b"version 1"
) -> CommitLineage:
    small.job = job
    (result,) = small.run(interval, clear=clear)
    found = read_commit(small.lake, result.plan)
    assert found is not None
    return found


def table(commit: CommitLineage, name: str) -> TableWritten:
    return next(t for t in commit.tables if t.name == name)


def offsets(topic: TopicRead) -> dict[tuple[str, int], list[tuple[int, int]]]:
    return {place: [(r.start, r.end) for r in found] for place, found in topic.ranges.items()}


def current_snapshot(small: SmallLake, name: str) -> int:
    metadata = small.table_state(name).metadata
    assert metadata is not None
    head = static_table(small.store, metadata).current_snapshot()
    assert head is not None
    return head.snapshot_id


def test_a_commit_has_its_offsets_half_open_by_partition() -> None:
    small = SmallLake()
    first, second = committed(small, days(1, 2)), committed(small, days(2, 3))
    (topic,) = first.topics
    described = small.log.describe([TOPIC])[TOPIC]
    assert topic.name == TOPIC
    assert topic.incarnations == {TOPIC: (described.topic_id, described.cluster_id)}
    # Two and three records, and a dead letter each; on day 2 also an aborted record and a control marker each.
    assert offsets(topic) == {(TOPIC, 0): [(0, 3)], (TOPIC, 1): [(0, 4)]}
    assert offsets(second.topics[0]) == {(TOPIC, 0): [(3, 8)], (TOPIC, 1): [(4, 10)]}
    assert (topic.totals.records, topic.totals.dead_letters) == (5, 2)
    assert (second.totals.aborted, second.totals.control) == (2, 2)


def test_rows_bytes_and_files_are_those_of_the_table() -> None:
    small = SmallLake()
    commit = committed(small, days(1, 2))
    assert [t.name for t in commit.tables] == [DEAD_LETTERS, "events", "per_kind"]
    for found in commit.tables:
        metadata = small.table_state(found.name).metadata
        assert metadata is not None
        live = list(live_files(small.store, metadata))
        assert found.rows == sum(f.rows for f in live)
        assert found.size_bytes == sum(f.size_bytes for f in live)
        assert found.files == len(live)
        assert found.location == static_table(small.store, metadata).location()
        assert found.columns == small.table_state(found.name).columns


def test_snapshots_are_those_around_the_commit() -> None:
    small = SmallLake()
    first = committed(small, days(1, 2))
    assert table(first, "events").before is None
    assert table(first, "events").after == current_snapshot(small, "events")
    second = committed(small, days(2, 3))
    assert table(second, "events").before == table(first, "events").after
    assert table(second, "events").after == current_snapshot(small, "events")


def test_the_lineage_stays_the_same_after_later_commits_and_after_a_replacement() -> None:
    small = SmallLake()
    first = committed(small, days(1, 2))
    committed(small, days(2, 3))
    replacing = committed(small, days(1, 2), clear=1, job=b"version 2")
    assert read_commit(small.lake, first.plan) == first
    assert (first.mode, first.generation) == ("append", 1)
    assert (replacing.mode, replacing.generation) == ("replace", 2)
    assert replacing.topics == first.topics
    assert table(replacing, "events").dropped == table(first, "events").files > 0
    assert first.version < replacing.version == keys.record_version(replacing.record)
    assert first.committed_at == NOW


def test_an_interval_without_offsets_changed_no_table() -> None:
    small = SmallLake()
    before = committed(small, days(1, 2))
    (planned,) = small.plan(days(5, 6)).intervals
    assert planned.committed
    empty = read_commit(small.lake, planned.plan)
    assert empty is not None
    assert empty.is_whole
    assert [offsets(t) for t in empty.topics] == [{}]
    for found in empty.tables:
        assert found.before == found.after == table(before, found.name).after
        assert (found.rows, found.size_bytes, found.files) == (0, 0, 0)


def test_a_plan_that_is_not_committed_has_no_lineage() -> None:
    small = good_lake()
    (planned,) = small.plan(days(6, 7)).intervals
    assert read_commit(small.lake, planned.plan) is None
    (other,) = small.plan(days(4, 5)).intervals
    assert read_commit(small.lake, other.plan) is None


def test_another_incarnation_has_the_name_of_its_topic_and_its_own_id() -> None:
    small = SmallLake()
    old = committed(small, days(1, 2))
    refill(small, 2, 4)
    adopted(small)
    (result,) = small.run(days(3, 4))
    new = read_commit(small.lake, result.plan)
    assert new is not None
    (topic,) = new.topics
    assert topic.name == TOPIC
    assert {name for name, _ in topic.ranges} == {f"{TOPIC}@2"}
    ids = topic.incarnations
    assert ids[f"{TOPIC}@2"] != old.topics[0].incarnations[TOPIC]
    (both,) = all_topics([old, new])
    assert {name for name, _ in both.ranges} == {TOPIC, f"{TOPIC}@2"}
    assert both.incarnations == {**old.topics[0].incarnations, **ids}


def test_several_commits_join_ranges_that_meet_and_add_up() -> None:
    small = SmallLake()
    third = committed(small, days(3, 4))
    first, second = committed(small, days(1, 2)), committed(small, days(2, 3))
    (topic,) = all_topics([third, first, second])
    assert offsets(topic) == {(TOPIC, 0): [(0, 11)], (TOPIC, 1): [(0, 14)]}
    (apart,) = all_topics([third, first])
    assert offsets(apart) == {(TOPIC, 0): [(0, 3), (8, 11)], (TOPIC, 1): [(0, 4), (10, 14)]}
    events = next(t for t in all_tables([second, third, first]) if t.name == "events")
    assert events.before is None
    assert events.after == current_snapshot(small, "events")
    assert events.rows == 15


@pytest.mark.parametrize("gone", ["report", "plan"])
def test_what_gc_has_deleted_is_unknown_and_the_rest_is_there(gone: str) -> None:
    small = SmallLake()
    whole = committed(small, days(1, 2))
    record = small.lake.record(whole.record)
    assert record is not None
    report = record.intervals[0].report
    assert report is not None
    small.store.delete([report if gone == "report" else whole.plan])
    left = read_commit(small.lake, whole.plan)
    assert left is not None
    assert (whole.is_whole, left.is_whole) == (True, False)
    assert offsets(left.topics[0]) == offsets(whole.topics[0])
    events = table(left, "events")
    assert (events.before, events.after) == (None, table(whole, "events").after)
    assert events.files == table(whole, "events").files
    if gone == "report":
        assert (events.rows, events.size_bytes) == (None, None)
        assert all_tables([whole, left])[1].rows is None
    else:
        assert (events.origins, left.topics[0].incarnations) == ((), {})


def test_without_its_metadata_a_table_has_no_snapshots_and_keeps_its_rows() -> None:
    small = SmallLake()
    whole = committed(small, days(1, 2))
    metadata = small.table_state("events").metadata
    assert metadata is not None
    small.store.delete([metadata])
    left = read_commit(small.lake, whole.plan)
    assert left is not None
    events = table(left, "events")
    assert (events.before, events.after) == (None, None)
    assert events.rows == table(whole, "events").rows


def test_a_damaged_record_is_an_error() -> None:
    small = SmallLake()
    commit = committed(small, days(1, 2))
    small.overwrite(commit.record, b"{")
    with pytest.raises(Corrupt):
        read_commit(small.lake, commit.plan)


def with_lookback(warehouse: str) -> Pipeline:
    base = pipeline(warehouse)
    return Pipeline(
        name=base.name,
        topics=base.topics,
        warehouse=base.warehouse,
        job=base.job,
        tables=base.tables,
        lookback=Lookback(tables=["events"], back=timedelta(days=2), uncommitted="stale"),
    )


def test_a_lookback_reads_the_tables_that_it_names() -> None:
    small = SmallLake(declared=with_lookback)
    commit = committed(small, Interval(start=day(1), end=day(2)))
    assert commit.lookback == (table(commit, "events").location,)
    assert SmallLake().run(days(1, 2))
    assert committed(SmallLake(), days(1, 2)).lookback == ()
