"""Checks what clients of a catalog saw of two tables against the lake's own history: of which version each table was.

The history comes from the commit records and from roots that the writer read itself. The catalog has no part in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import accumulate
from typing import Literal

from tallystick.format import keys

TABLES = ("events", "totals")
Pair = tuple[str, str]
"""The keys of the metadata of both tables."""
Counts = Mapping[int, int]
"""The rows of a table, by the number of their interval."""
Mode = Literal["newest", "token", "version", "instant", "latest"]
Client = Literal["pyiceberg", "duckdb"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryVersion:
    """A version of the lake that a record describes. `counts`: the rows that each of the tables must have."""

    version: int
    committed_at: datetime
    pair: Pair
    counts: Counts
    compactions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenVersion:
    """A version that was published by the time `at_s`. `pair`: the tables of its root, if the root itself was read."""

    version: int
    at_s: float
    pair: Pair | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """A session of a client that read both tables.

    `asked`: the version or the instant that the warehouse named. `session`: the version that the prefix names. `pair` is
    None if the client does not show it; `counts` is None if no row was read. `first`: the table that was read first.
    """

    number: int
    client: Client
    mode: Mode
    began_s: float
    ended_s: float
    steps_s: tuple[tuple[str, float], ...]
    first: int
    asked: int | datetime | None = None
    session: int | None = None
    pair: Pair | None = None
    counts: tuple[Counts, Counts] | None = None

    @property
    def rows(self) -> int:
        """The number of rows that were read of both tables; one for each interval of the second one."""
        return 0 if self.counts is None else sum(self.counts[0].values()) + len(self.counts[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A promise that a poll shows to be broken."""

    kind: Literal["mixed", "wrong version", "stale", "wrong rows", "unknown", "record"]
    text: str


class History:
    """The versions of a lake in their order, and the times by which some of them were published."""

    def __init__(self, versions: Sequence[HistoryVersion], seen: Sequence[SeenVersion]) -> None:
        self.versions = tuple(versions)
        self._numbers = [one.version for one in versions]
        self._by_pair = {one.pair: place for place, one in enumerate(versions)}
        self._places: list[dict[str, tuple[int, int]]] = [{} for _ in TABLES]
        for place, one in enumerate(versions):
            for table, key in enumerate(one.pair):
                first, _ = self._places[table].get(key, (place, place))
                self._places[table][key] = (first, place)
        in_time = sorted(seen, key=lambda one: one.at_s)
        self._times = [one.at_s for one in in_time]
        self._newest = list(accumulate((self.at_or_before(one.version) for one in in_time), max))

    def at_or_before(self, version: int) -> int:
        """Return the place of the last version at or before a number."""
        return max(0, bisect_left(self._numbers, version + 1) - 1)

    def place_of(self, version: int | None) -> int | None:
        """Return the place of a version, or None if no record has it."""
        if version is None:
            return None
        place = self.at_or_before(version)
        return place if self._numbers[place] == version else None

    def place_of_pair(self, pair: Pair) -> int | None:
        """Return the place of the version with exactly these tables, or None."""
        return self._by_pair.get(pair)

    def places_of_table(self, table: int, key: str) -> tuple[int, int] | None:
        """Return the first and the last version in which a table had this metadata, or None."""
        return self._places[table].get(key)

    def places_of_counts(self, counts: Counts) -> tuple[int, ...]:
        """Return the versions with exactly these rows. A compaction changes none."""
        return tuple(place for place, one in enumerate(self.versions) if one.counts == counts)

    def published_by(self, at_s: float) -> int:
        """Return the place of the newest version of which it is certain that it was published before a time."""
        found = bisect_left(self._times, at_s)
        return self._newest[found - 1] if found else 0

    def record_problems(self, seen: Sequence[SeenVersion]) -> Iterator[Problem]:
        """Yield the roots that had other tables than the record of their version."""
        for one in seen:
            place = self.place_of(one.version)
            if one.pair is None:
                continue
            if place is None or self.versions[place].pair != one.pair:
                yield Problem(
                    kind="record",
                    text=f"version {one.version}: the root had {one.pair}, its record has other tables",
                )


def problems(history: History, poll: Poll) -> Iterator[Problem]:
    """Yield each promise that a poll shows to be broken."""
    if poll.pair is not None and poll.mode == "latest":
        yield from _following(history, poll, poll.pair)
    elif poll.pair is not None:
        yield from _pinned(history, poll, poll.pair)
    if poll.counts is not None and poll.pair is not None:
        yield from _rows_of_metadata(history, poll, poll.pair, poll.counts)
    elif poll.counts is not None:
        yield from _rows_alone(history, poll, poll.counts)


def _pinned(history: History, poll: Poll, pair: Pair) -> Iterator[Problem]:
    """Both tables are those of one root, and it is the version that the prefix names."""
    place = history.place_of_pair(pair)
    if place is None:
        spans = [_span(history, table, key) for table, key in enumerate(pair)]
        yield Problem(
            kind="mixed",
            text=f"{_name(poll)}: {TABLES[0]} is of {spans[0]}, {TABLES[1]} of {spans[1]}: no version has both",
        )
        return
    found = history.versions[place].version
    if found != poll.session:
        yield Problem(
            kind="wrong version",
            text=f"{_name(poll)}: expected version {poll.session} of the prefix, found {found}",
        )
    yield from _selected(history, poll, (place,))


def _following(history: History, poll: Poll, pair: Pair) -> Iterator[Problem]:
    """Each table is of a version, no older than the one before it; the two may differ."""
    spans = [history.places_of_table(table, key) for table, key in enumerate(pair)]
    first, second = spans[poll.first], spans[1 - poll.first]
    if first is None or second is None:
        yield Problem(kind="unknown", text=f"{_name(poll)}: no version has one of {pair}")
        return
    oldest = history.published_by(poll.began_s)
    if first[1] < oldest or second[1] < max(oldest, first[0]):
        yield Problem(
            kind="stale",
            text=f"{_name(poll)}: version {history.versions[oldest].version} was published before it, found "
            f"{_span(history, 0, pair[0])} and {_span(history, 1, pair[1])}",
        )


def _rows_of_metadata(
    history: History, poll: Poll, pair: Pair, counts: tuple[Counts, Counts]
) -> Iterator[Problem]:
    """Return the problems of rows that differ from those that the version of the table's metadata has."""
    for table, (key, found) in enumerate(zip(pair, counts, strict=True)):
        span = history.places_of_table(table, key)
        if span is None or history.versions[span[0]].counts != found:
            yield Problem(
                kind="wrong rows",
                text=f"{_name(poll)}: {TABLES[table]} of {_span(history, table, key)} has other rows, in "
                f"{len(found)} intervals",
            )


def _rows_alone(history: History, poll: Poll, counts: tuple[Counts, Counts]) -> Iterator[Problem]:
    """Both tables have the rows of one version."""
    if counts[0] != counts[1]:
        differ = sorted(n for n in {*counts[0], *counts[1]} if counts[0].get(n) != counts[1].get(n))
        yield Problem(
            kind="mixed",
            text=f"{_name(poll)}: the tables have other rows of the intervals {differ[:5]}",
        )
        return
    places = history.places_of_counts(counts[0])
    if not places:
        yield Problem(kind="wrong rows", text=f"{_name(poll)}: no version has these rows")
        return
    yield from _selected(history, poll, places)


def _selected(history: History, poll: Poll, places: Sequence[int]) -> Iterator[Problem]:
    """One of the versions is what the warehouse selects; a version that was published before the session is seen."""
    oldest = history.published_by(poll.began_s)
    found = [history.versions[place].version for place in places]
    match poll.asked:
        case int(version):
            if version not in found:
                yield Problem(
                    kind="wrong version",
                    text=f"{_name(poll)}: expected version {version}, found {found}",
                )
            return
        case datetime() as instant:
            at = keys.instant(instant)
            places = [p for p in places if history.versions[p].committed_at <= instant]
            if not places:
                yield Problem(
                    kind="wrong version", text=f"{_name(poll)}: {found} is committed after {at}"
                )
                return
            while oldest and history.versions[oldest].committed_at > instant:
                oldest -= 1
    if max(places) < oldest:
        yield Problem(
            kind="stale",
            text=f"{_name(poll)}: version {history.versions[oldest].version} was published before it, found {found}",
        )


def with_next_table(history: History, poll: Poll) -> Poll | None:
    """Return a pinned poll whose second table is of the next version; None if that has the same one.

    The check must find it: a check that never fails proves nothing.
    """
    counts = None if poll.counts is None else poll.counts[0]
    if poll.mode == "latest":
        return None
    if poll.pair is not None:
        place = history.place_of_pair(poll.pair)
    else:
        place = max(history.places_of_counts(counts or {}), default=None)
    if place is None or place + 1 == len(history.versions):
        return None
    after = history.versions[place + 1]
    if poll.pair is not None:
        return (
            None
            if poll.pair[1] == after.pair[1]
            else replace(poll, pair=(poll.pair[0], after.pair[1]), counts=None)
        )
    return None if counts is None else replace(poll, counts=(counts, after.counts))


def is_overtaken(history: History, poll: Poll) -> bool:
    """Return True if a version was published between the begin of the session and its end."""
    return history.published_by(poll.ended_s) > history.published_by(poll.began_s)


def _span(history: History, table: int, key: str) -> str:
    found = history.places_of_table(table, key)
    if found is None:
        return f"no version ({key})"
    first, last = (history.versions[place].version for place in found)
    return f"version {first}" if first == last else f"versions {first} to {last}"


def _name(poll: Poll) -> str:
    return f"poll {poll.number} ({poll.client}, {poll.mode})"
