"""Adoption: which incarnation of a topic may follow which, its origins, and the boundaries of both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tallystick.errors import InvalidPipeline
from tallystick.format import keys
from tallystick.format.canonical import INT_MAX
from tallystick.format.interval import Interval
from tallystick.format.offsets import Position
from tallystick.format.page import Boundary
from tallystick.format.root import Closed, Root, RootTopic
from tallystick.protocol.adoption import (
    Adopt,
    AlreadyRead,
    EndsTooEarly,
    InvalidEnds,
    LastCopy,
    NothingRead,
    ReadBefore,
    SameTopic,
    Unsplit,
    cuts,
    decide_adoption,
    last_copy,
    positions_without_log,
)
from tallystick.protocol.ledger import Ledger
from unit.format.samples import SAMPLE_ADOPTED, SAMPLE_PLAN, SAMPLE_ROOT, at

OLD = RootTopic(topic_id="1", cluster_id="c", origins=(2, 0))
NEW = RootTopic(topic_id="2", cluster_id="c", origins=(0,))
ROOT = replace(SAMPLE_ROOT, topics={"t": OLD})


def row(*offsets: int) -> tuple[Position, ...]:
    return tuple(Position(offset=o) for o in offsets)


LAST = Boundary(at=at(3), positions={"t": row(10, 20)})


def adopt(root: Root, new: RootTopic, **ends: int) -> Any:
    return decide_adoption(root, LAST, "t", new, {int(p[1:]): end for p, end in ends.items()})


def test_adoption_closes_the_old_topic_at_its_last_boundary_or_at_a_later_end() -> None:
    found = adopt(ROOT, NEW)
    assert isinstance(found, Adopt)
    assert (found.closed, found.adopted, found.since, found.lost) == ("t", "t@2", at(3), (0, 0))
    assert found.topics["t"] == replace(OLD, closed=Closed(since=at(3), ends=(10, 20)))
    assert found.topics["t@2"] == NEW
    later = adopt(ROOT, NEW, p1=25, p2=3)
    assert later.lost == (0, 5, 3)
    assert later.topics["t"].origins == (2, 0, 0)
    assert later.topics["t"].closed.ends == (10, 25, 3)


def test_a_topic_that_cannot_follow_is_not_adopted() -> None:
    assert adopt(ROOT, OLD) == AlreadyRead(name="t", follows=None)
    assert adopt(ROOT, NEW, p0=9) == EndsTooEarly(partition=0, read_to=10, end=9)
    assert decide_adoption(ROOT, LAST, "other", NEW, {}) == NothingRead()
    assert decide_adoption(ROOT, None, "t", NEW, {}) == NothingRead()
    adopted = replace(ROOT, topics=adopt(ROOT, NEW).topics)
    assert adopt(adopted, NEW) == AlreadyRead(name="t@2", follows="t")
    assert adopt(adopted, OLD) == ReadBefore(name="t")
    # Topic ids are random: the same id on another cluster is a copy, for example one restored from its disks.
    assert adopt(adopted, replace(NEW, cluster_id="d")) == SameTopic(name="t@2")
    assert adopt(ROOT, replace(OLD, cluster_id="d")) == SameTopic(name="t")
    assert adopt(adopted, replace(NEW, topic_id="3")).adopted == "t@3"
    # Another topic of the pipeline may have any id: it is not this topic.
    both = replace(ROOT, topics={"t": OLD, "u": NEW})
    assert adopt(both, NEW).adopted == "t@2"


def test_impossible_ends_are_refused() -> None:
    """A typing error would stay in the root for ever."""
    assert adopt(ROOT, NEW, p3=1) == InvalidEnds(
        why="partition 2 has no end, although partition 3 has one; the ledger has partitions 0 to 1"
    )
    found = adopt(ROOT, NEW, p0=INT_MAX, p1=INT_MAX)
    assert isinstance(found, InvalidEnds)
    assert "does not fit 64 bits" in found.why
    assert isinstance(adopt(ROOT, NEW, p2=1, p3=1), Adopt)


TOPICS = {"t": replace(OLD, closed=Closed(since=at(3), ends=(15, 20))), "t@2": NEW}


def ledger() -> Ledger:
    out = Ledger((), {})
    for hour, offsets in ((1, (4, 8)), (2, (4, 8)), (3, (10, 20))):
        out.set_boundary(Boundary(at=at(hour), positions={"t": row(*offsets)}))
    return out


def test_boundaries_after_an_adoption_end_the_old_topic_and_look_up_the_new_one() -> None:
    assert positions_without_log(ledger(), TOPICS, "t", at(4)) == row(15, 20)
    assert positions_without_log(ledger(), TOPICS, "t@2", at(4)) is None
    assert positions_without_log(ledger(), {"t": OLD}, "t", at(4)) is None


def test_boundaries_before_an_adoption_exclude_the_new_topic_and_split_no_range_of_the_old() -> (
    None
):
    half = at(1) + (at(2) - at(1)) / 2
    assert positions_without_log(ledger(), TOPICS, "t@2", half) == row(0)
    assert positions_without_log(ledger(), TOPICS, "t", half) == row(4, 8)  # no offsets between
    after = at(2) + (at(2) - at(1)) / 2
    assert positions_without_log(ledger(), TOPICS, "t", after) == Unsplit(
        name="t", start=at(2), end=at(3)
    )
    assert positions_without_log(ledger(), TOPICS, "t", at(0)) == Unsplit(
        name="t", start=None, end=at(1)
    )


def test_committed_rows_of_a_closed_topic_are_the_last_copy() -> None:
    first, second, third = (Interval(start=at(h), end=at(h + 1)) for h in (1, 2, 3))
    stored = ledger()
    stored.set_boundary(Boundary(at=at(4), positions={"t": row(15, 20), "t@2": row(9)}))
    expected = LastCopy(interval=second, name="t", offsets=18, since=at(3))
    assert last_copy(stored, TOPICS, [first, second]) == expected
    # The first hour has no offsets. The third lost its tail with the adoption and is read again from the new topic.
    assert last_copy(stored, TOPICS, [first, third]) is None
    assert last_copy(stored, {"t": OLD}, [second]) is None
    assert "18 offsets of topic t" in expected.message
    assert f"Request intervals from {keys.instant(at(3))} on" in expected.hint
    assert cuts(TOPICS) == (at(3),)


def test_a_name_contains_topic_and_incarnation_and_other_forms_are_refused() -> None:
    assert [keys.incarnation(n) for n in ("t", "t@2", "t@31")] == [1, 2, 31]
    assert [keys.kafka_topic(n) for n in ("t", "t@2")] == ["t", "t"]
    assert [keys.next_incarnation(n) for n in ("t", "t@2")] == ["t@2", "t@3"]
    assert [keys.previous_incarnation(n) for n in ("t", "t@2", "t@3")] == [None, "t", "t@2"]
    for valid in ("a.B-c_d", "t@2", "t@10"):
        assert keys.check_incarnation(valid) == valid
    for invalid in ("t@1", "t@0", "t@", "t@02", "t@2@3", "@2", "t@x"):
        with pytest.raises(ValueError, match="expected an incarnation of a topic"):
            keys.check_incarnation(invalid)
    with pytest.raises(InvalidPipeline, match="is not allowed"):
        keys.check_incarnation("a/b")


@pytest.mark.parametrize(
    "topics",
    [
        {"t": TOPICS["t"]},
        {"t": OLD, "t@2": NEW},
        {"t@2": NEW},
        {"t": OLD, "t@3": NEW},
        {"t": OLD, "u@2": NEW},
    ],
)
def test_a_root_accepts_an_incarnation_only_after_a_closed_one(
    topics: dict[str, RootTopic],
) -> None:
    with pytest.raises(ValueError, match=r"closed if and only if an incarnation follows|follows"):
        replace(SAMPLE_ROOT, topics=topics)


@pytest.mark.parametrize("ends", [(1, 1), (3,), (3, 0, 0), (-1, 0)])
def test_each_partition_of_a_closed_topic_ends_at_or_after_its_origin(ends: tuple[int]) -> None:
    with pytest.raises(ValueError, match=r"end at or after its origin|found a negative end"):
        replace(OLD, closed=Closed(since=at(0), ends=ends))


def test_a_plan_reads_the_last_incarnation_of_each_topic() -> None:
    """The lost tail of the old incarnation is planned together with the new one; rows come from the last."""
    (planned,) = SAMPLE_PLAN.topics
    names = ("b", "a@10", "a", "a@9")
    plan = replace(SAMPLE_PLAN, topics=tuple(replace(planned, name=name) for name in names))
    assert plan.read_names == {"b": "b", "a": "a@10"}


def test_the_open_topic_is_the_last_incarnation() -> None:
    assert SAMPLE_ADOPTED.open_topic("flights") == "flights@2"
    assert SAMPLE_ROOT.open_topic("flights") == "flights"
    assert SAMPLE_ROOT.open_topic("new") == "new"
