"""Checks the whole ledger: pages match the root's index, entries do not overlap, boundaries never go back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from tallystick.format import keys
from tallystick.format.offsets import OffsetRange
from tallystick.format.page import Boundary, Entry, Page
from tallystick.format.plan import Plan
from tallystick.format.record import CommittedInterval
from tallystick.operations.verify.evidence import Case, Evidence
from tallystick.operations.verify.proof import Ongoing
from tallystick.protocol.invariants import closed_problems

Place = tuple[str, int]
"""A topic and a partition number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """Every entry and boundary of the ledger, as far as its pages could be read; `whole` if all could."""

    entries: tuple[Entry, ...]
    boundaries: Mapping[datetime, Boundary]
    origins: Mapping[str, tuple[int, ...]]
    whole: bool

    def ranges(self, entry: Entry) -> dict[Place, OffsetRange] | None:
        """Return the ranges between an entry's boundaries; None if a boundary is missing or they go back."""
        start, end = (
            self.boundaries.get(entry.interval.start),
            self.boundaries.get(entry.interval.end),
        )
        if start is None or end is None:
            return None
        found: dict[Place, OffsetRange] = {}
        for topic, origins in self.origins.items():
            for partition in range(len(origins)):
                low = start.position(topic, partition, self.origins).offset
                high = end.position(topic, partition, self.origins).offset
                if low > high:
                    return None
                found[topic, partition] = OffsetRange(start=low, end=high)
        return found


def read_tiles(evidence: Evidence) -> Tiles:
    """Read every page and check the ledger as a whole (I1, I2)."""
    check = evidence.checks["tiling"]
    refs = evidence.root.pages
    pages: list[Page] = []
    for number, (ref, found) in enumerate(
        zip(refs, evidence.in_parallel(evidence.page, refs, "pages", len(refs)), strict=True)
    ):
        page = evidence.take(found, ref.key, "page")
        if page is None:
            continue
        pages.append(page)
        until = refs[number + 1].since if number + 1 < len(refs) else None
        _check_page(check, ref.key, (ref.since, ref.until), page, until)
    entries = tuple(sorted((e for p in pages for e in p.entries), key=lambda e: e.interval))
    boundaries: dict[datetime, Boundary] = {}
    for boundary in (b for p in pages for b in p.boundaries):
        if boundary.at in boundaries:
            check.found(
                "I2",
                _at(boundary.at),
                "a boundary is in two pages",
                expected="one boundary",
                found="two",
            )
        boundaries[boundary.at] = boundary
    tiles = Tiles(
        entries=entries,
        boundaries=dict(sorted(boundaries.items())),
        origins=evidence.root.origins,
        whole=len(pages) == len(refs),
    )
    _check_entries(check, tiles)
    _check_boundaries(check, tiles)
    for problem in closed_problems(evidence.root, tiles.boundaries.values()):
        check.found(
            "I2",
            "adopted topics",
            problem,
            expected="a closed topic at its end, and the topic that follows it from there on",
            found="otherwise",
        )
    return tiles


def check_ranges(check: Ongoing, tiles: Tiles, case: Case) -> None:
    """Check that planned and accounted ranges of a committed interval are the difference of its boundaries (I2)."""
    expected = tiles.ranges(case.entry)
    if expected is None:
        return  # already a finding of the boundary check
    check.count("committed offset", sum(r.length for r in expected.values()))
    if case.record is not None:
        _compare(check, case.where, "the account's range", expected, _accounted(case.record))
    if case.plan is not None:
        _compare(check, case.where, "the plan's range", expected, _planned(case.plan))


def check_grant(check: Ongoing, tiles: Tiles, entry: Entry, plan: Plan) -> None:
    """Check that a granted plan matches the ledger's grant (I5) and the entry's boundaries (I2)."""
    assert entry.granted is not None  # the caller passes only entries with a grant
    where = str(entry.interval)
    found = (plan.interval, plan.generation, plan.request)
    granted = (entry.interval, entry.granted.generation, entry.granted.request)
    check.differs(
        "I5",
        where,
        "the granted plan (interval, generation, request)",
        expected=granted,
        found=found,
    )
    expected = tiles.ranges(entry)
    if expected is not None:
        _compare(check, where, "the granted plan's range", expected, _planned(plan))


def _check_page(
    check: Ongoing, key: str, ref: tuple[datetime, datetime], page: Page, until: datetime | None
) -> None:
    check.differs(
        "I2",
        key,
        "the first instant and the reach of the page, and the root's index",
        expected=tuple(_at(at) for at in ref),
        found=(_at(page.since), _at(page.until)),
    )
    last = page.boundaries[-1].at
    if until is not None and last >= until:
        check.found(
            "I2",
            key,
            "the page reaches into the next one",
            expected=f"before {_at(until)}",
            found=_at(last),
        )


def _check_entries(check: Ongoing, tiles: Tiles) -> None:
    furthest: Entry | None = None
    for entry in tiles.entries:
        check.count("committed interval", entry.committed is not None)
        check.count("grant", entry.granted is not None)
        if furthest is not None and entry.interval.start < furthest.interval.end:
            check.found(
                "I1",
                str(entry.interval),
                "two entries overlap",
                expected=f"a start at or after {_at(furthest.interval.end)}, where {furthest.interval} ends",
                found=_at(entry.interval.start),
            )
        if furthest is None or entry.interval.end > furthest.interval.end:
            furthest = entry
        missing = [
            at for at in (entry.interval.start, entry.interval.end) if at not in tiles.boundaries
        ]
        if missing and tiles.whole:
            check.found(
                "I2",
                str(entry.interval),
                "a boundary is missing",
                expected=f"one at {_at(missing[0])}",
                found="none",
            )


def _check_boundaries(check: Ongoing, tiles: Tiles) -> None:
    last: dict[Place, tuple[int, str]] = {
        (topic, p): (origin, "its origin")
        for topic, origins in tiles.origins.items()
        for p, origin in enumerate(origins)
    }
    for boundary in tiles.boundaries.values():
        check.count("boundary")
        for topic, positions in boundary.positions.items():
            known = len(tiles.origins.get(topic, ()))
            if len(positions) > known:
                check.found(
                    "I2",
                    _at(boundary.at),
                    f"partitions of {topic}",
                    expected=f"{known}, as in the root",
                    found=len(positions),
                )
        for topic, partition in list(last):
            offset = boundary.position(topic, partition, tiles.origins).offset
            before, named = last[topic, partition]
            if offset < before:
                check.found(
                    "I2",
                    f"{topic}[{partition}] at {_at(boundary.at)}",
                    "a boundary goes back",
                    expected=f"at least {before} ({named})",
                    found=offset,
                )
            last[topic, partition] = (max(before, offset), f"the boundary at {_at(boundary.at)}")


def _compare(
    check: Ongoing,
    where: str,
    what: str,
    expected: Mapping[Place, OffsetRange],
    found: Iterable[tuple[Place, OffsetRange]],
) -> None:
    left = dict(expected)
    for place, span in found:
        between = left.pop(place, None)
        check.differs(
            "I2",
            f"{where} {place[0]}[{place[1]}]",
            f"{what} and its boundaries",
            expected=between or "no such partition",
            found=span,
        )
    for place, span in left.items():
        if not span.empty:
            check.found(
                "I2",
                f"{where} {place[0]}[{place[1]}]",
                f"{what} and its boundaries",
                expected=span,
                found="nothing",
            )


def _accounted(record: CommittedInterval) -> list[tuple[Place, OffsetRange]]:
    return [
        ((a.topic, a.partition), OffsetRange(start=a.start, end=a.end)) for a in record.accounts
    ]


def _planned(plan: Plan) -> list[tuple[Place, OffsetRange]]:
    return [((t.name, p), r.span) for t in plan.topics for p, r in enumerate(t.ranges)]


def _at(at: datetime) -> str:
    return keys.instant(at)
