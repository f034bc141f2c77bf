"""The input that the examples generate is always the same, and contains the cases that their checks require."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import pytest

from examples.ads import scenario as ads
from examples.average import scenario as average
from examples.runner.harness import day
from examples.runner.produce import Record

GENERATED = {
    "readings": average.readings,
    "impressions": lambda days: ads.events(days).impressions,
    "clicks": lambda days: ads.events(days).clicks,
}


def ms(number: int) -> int:
    """Return midnight at the start of a day as a Kafka timestamp."""
    return round(day(number).timestamp() * 1000)


@pytest.mark.parametrize("name", GENERATED)
def test_the_input_is_always_the_same_and_within_its_days(name: str) -> None:
    records = GENERATED[name](3)
    assert records == GENERATED[name](3)
    assert all(ms(1) <= r.at_ms < ms(4) for r in records)
    # A late record arrives behind one with a later time, in its own partition.
    assert any(late(records))


def late(records: Sequence[Record]) -> list[Record]:
    """Return the records that follow a later record of their partition."""
    late_records: list[Record] = []
    clocks: dict[int, int] = {}
    for record in records:
        if record.at_ms < clocks.get(record.partition, 0):
            late_records.append(record)
        clocks[record.partition] = max(record.at_ms, clocks.get(record.partition, 0))
    return late_records


def test_some_readings_arrive_on_the_day_after_their_time() -> None:
    assert any(r.at_ms < ms(2) <= clock for r, clock in clocked(average.readings(2)))


def clocked(records: Sequence[Record]) -> list[tuple[Record, int]]:
    """Return each record with its log time."""
    clocks: Counter[int] = Counter()
    with_log_time = []
    for record in records:
        clocks[record.partition] = max(record.at_ms, clocks[record.partition])
        with_log_time.append((record, clocks[record.partition]))
    return with_log_time


@pytest.mark.parametrize("name", ["impressions", "clicks"])
def test_some_events_are_repeated_and_some_are_broken(name: str) -> None:
    values = [r.value for r in GENERATED[name](3)]
    whole = [value for value in values if value.endswith("}")]
    assert 0 < len(values) - len(whole) < 20
    ids = Counter(json.loads(value)["id"] for value in whole)
    assert max(ids.values()) == 2
    assert list(ids.values()).count(2) > 20
