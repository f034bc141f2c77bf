"""What the examples make up is always the same, and holds what their judges need to see."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import pytest

from examples.ads import play as ads
from examples.average import play as average
from examples.runner.produce import Record
from examples.runner.scene import day

MADE = {
    "readings": average.readings,
    "impressions": lambda days: ads.events(days).impressions,
    "clicks": lambda days: ads.events(days).clicks,
}


def ms(number: int) -> int:
    """Midnight at which a day begins, as Kafka has it."""
    return round(day(number).timestamp() * 1000)


@pytest.mark.parametrize("name", MADE)
def test_it_is_always_the_same_and_no_record_is_of_another_time(name: str) -> None:
    made = MADE[name](3)
    assert made == MADE[name](3)
    assert all(ms(1) <= one.at_ms < ms(4) for one in made)
    # A late record arrives behind one with a later time, in its own partition.
    assert any(late(made))


def late(made: Sequence[Record]) -> list[Record]:
    """The records that come after a later one of their partition."""
    found: list[Record] = []
    clocks: dict[int, int] = {}
    for one in made:
        if one.at_ms < clocks.get(one.partition, 0):
            found.append(one)
        clocks[one.partition] = max(one.at_ms, clocks.get(one.partition, 0))
    return found


def test_some_readings_arrive_on_the_day_after_theirs() -> None:
    assert any(one.at_ms < ms(2) <= clock for one, clock in clocked(average.readings(2)))


def clocked(made: Sequence[Record]) -> list[tuple[Record, int]]:
    """Each record with the clock of its partition there."""
    clocks: Counter[int] = Counter()
    found = []
    for one in made:
        clocks[one.partition] = max(one.at_ms, clocks[one.partition])
        found.append((one, clocks[one.partition]))
    return found


@pytest.mark.parametrize("name", ["impressions", "clicks"])
def test_events_come_twice_and_some_are_broken(name: str) -> None:
    values = [one.value for one in MADE[name](3)]
    whole = [value for value in values if value.endswith("}")]
    assert 0 < len(values) - len(whole) < 20
    ids = Counter(json.loads(value)["id"] for value in whole)
    assert max(ids.values()) == 2
    assert list(ids.values()).count(2) > 20
