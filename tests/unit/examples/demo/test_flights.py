"""The demo's records equal the CSV, and are broken and batched the same way each time."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime

import pytest

from examples.demo.flights import (
    ABORTED,
    BREAKS,
    COMMITTED,
    PARTITIONS,
    Flight,
    break_some,
    in_batches,
    read_flights,
)

UNTIL = date(2013, 1, 7)


@pytest.fixture(scope="module")
def flights() -> list[Flight]:
    return read_flights(UNTIL)


def test_flights_are_in_the_order_of_their_departure_in_utc(flights: list[Flight]) -> None:
    assert [f.at_ms for f in flights] == sorted(f.at_ms for f in flights)
    first = flights[0]
    assert (first.row, first.key) == (1, b"N14228")
    # 5:15 in New York's winter.
    assert first.at_ms == datetime(2013, 1, 1, 10, 15, tzinfo=UTC).timestamp() * 1000
    assert json.loads(first.value)["departure"] == "2013-01-01T10:15:00Z"


def test_departure_equals_the_hour_of_the_csv_in_utc(
    flights: list[Flight],
) -> None:
    for flight in flights:
        document = json.loads(flight.value)
        assert document["departure"][:13] == document["time_hour"][:13]


def test_na_is_null_and_numbers_are_numbers(flights: list[Flight]) -> None:
    documents = [json.loads(f.value) for f in flights]
    cancelled = [d for d in documents if d["dep_time"] is None]
    assert cancelled
    assert all(isinstance(d["distance"], int) for d in documents)
    assert not any("NA" in d.values() for d in documents)


def test_a_key_determines_the_partition_and_flights_without_one_rotate(
    flights: list[Flight],
) -> None:
    by_key: dict[bytes, set[int]] = {}
    for flight in flights:
        if flight.key is not None:
            by_key.setdefault(flight.key, set()).add(flight.partition)
    assert all(len(partitions) == 1 for partitions in by_key.values())
    keyless = [f for f in flights if f.key is None]
    assert len(keyless) > PARTITIONS
    assert {f.partition for f in flights if f.key is None} == set(range(PARTITIONS))


def test_a_tenth_of_a_percent_is_broken_in_equal_shares_and_the_rest_untouched(
    flights: list[Flight],
) -> None:
    broken = break_some(flights, share=0.01)
    kinds = Counter(f.kind for f in broken)
    assert {kinds[kind] for kind in BREAKS} == {round(len(flights) * 0.01 / 3)}
    for before, after in zip(flights, broken, strict=True):
        assert (after.kind == "ok") == (before.value == after.value)
        assert before[:2] + before[3:5] == after[:2] + after[3:5]


def test_broken_values_are_broken_according_to_their_kind(flights: list[Flight]) -> None:
    broken = [f for f in break_some(flights, share=0.01) if f.kind != "ok"]
    for flight in broken:
        if flight.kind == "utf8":
            with pytest.raises(UnicodeDecodeError):
                flight.value.decode()
        elif flight.kind == "cut":
            with pytest.raises(json.JSONDecodeError):
                json.loads(flight.value)
        else:
            json.loads(flight.value)
    wrong = [json.loads(f.value) for f in broken if f.kind == "type"]
    assert any(isinstance(d["distance"], str) for d in wrong)
    assert any(isinstance(d["month"], float) for d in wrong)
    assert any(d["origin"] is None for d in wrong)


def test_breaking_is_the_same_each_time(flights: list[Flight]) -> None:
    assert break_some(flights) == break_some(flights)


def test_batches_have_all_flights_once_and_aborted_copies_in_the_middle_of_a_day(
    flights: list[Flight],
) -> None:
    batches = in_batches(flights)
    assert [b.end for b in batches] == ["plain", "aborted", "committed", "plain"]
    sent = [f for b in batches if b.end != "aborted" for f in b.flights]
    assert sent == flights
    aborted = batches[1].flights
    assert len(aborted) == ABORTED
    assert len(batches[2].flights) == COMMITTED
    assert set(aborted) <= set(flights)
    noon = datetime(2013, 1, 5, 12, tzinfo=UTC).timestamp() * 1000
    assert 0 <= aborted[0].at_ms - noon < 3_600_000
