"""The fake log behaves as planning requires, so that tests on it prove something."""

from __future__ import annotations

from datetime import timedelta

import pytest

from support.fakes import FakeLog
from support.small_lake import TOPIC, SmallLake, day, days
from tallystick.errors import IdentityChanged, LogDamaged, NotYet, OutsideRetention


def offsets(log: FakeLog, number: int, floors: tuple[int, ...] = (0, 0)) -> list[int]:
    at_ms = round(day(number).timestamp() * 1000)
    return [p.offset for p in log.boundary(TOPIC, at_ms, floors, latest_ms=2**62)]


@pytest.fixture
def small() -> SmallLake:
    return SmallLake()


def test_a_boundary_is_before_the_first_data_record_at_or_after_its_instant(
    small: SmallLake,
) -> None:
    assert offsets(small.log, 1) == [0, 0]
    assert offsets(small.log, 2) == [3, 4]


def test_a_marker_with_a_late_timestamp_moves_no_boundary(small: SmallLake) -> None:
    """Day 2 ends with a marker with the broker's time, later than every record."""
    assert offsets(small.log, 3) == [8, 10]
    assert offsets(small.log, 20) == [17, 22]


def test_the_search_begins_at_its_floor(small: SmallLake) -> None:
    assert offsets(small.log, 1, (5, 6)) == [5, 6]


def test_an_open_transaction_before_the_boundary_is_not_yet(small: SmallLake) -> None:
    small.log.hold(TOPIC, 0, stable=2)
    with pytest.raises(NotYet, match="last stable offset 2"):
        small.run(days(1, 2))
    small.log.hold(TOPIC, 0, stable=None)
    assert len(small.run(days(1, 2))) == 1


def test_a_recreated_topic_has_another_identity(small: SmallLake) -> None:
    small.run(days(1, 2))
    small.log.create(TOPIC, partitions=2)
    with pytest.raises(IdentityChanged, match="topic-id-2"):
        small.plan(days(2, 3))


def test_a_missing_topic_is_an_error(small: SmallLake) -> None:
    del small.log.topics[TOPIC]
    with pytest.raises(IdentityChanged, match="topic 'events' does not exist"):
        small.plan(days(1, 2))


def test_expired_records_are_outside_retention(small: SmallLake) -> None:
    small.run(days(1, 2))
    small.log.expire(TOPIC, 0, before=6)
    with pytest.raises(OutsideRetention, match="found a log that begins at 6"):
        small.plan(days(2, 3))


def test_another_history_before_a_known_boundary_is_damage(small: SmallLake) -> None:
    small.run(days(1, 2))
    small.log.rewrite(TOPIC, 0, start=1)
    with pytest.raises(LogDamaged, match="no longer has the history"):
        small.plan(days(2, 3))


def test_later_records_belong_to_later_intervals(small: SmallLake) -> None:
    small.run(days(1, 3))
    offset = small.log.append(TOPIC, 0, day(1) + timedelta(hours=1), n=1)
    (result,) = small.run(days(3, 8))
    assert result.totals.records == 15 + 1
    assert offset == 17
