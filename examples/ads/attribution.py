"""The rules of the example `ads`, told again in plain Python: what is a duplicate, and where a click goes back to.

docs/how-to/example-ads.md says them in words. One pass over both logs, which knows no intervals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from examples.checks.sent import Sent, by_day, read_sent

HORIZON_MS, ATTRIBUTION_MS = 6 * 3_600_000, 30 * 60_000
CAMPAIGNS = {"winter": ("a1", "a2"), "travel": ("a3", "a4"), "books": ("a5", "a6")}
Place = tuple[str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event that was sent and committed, with its place in the log; `log_ms`: the clock of its partition there."""

    place: Place
    day: datetime
    log_ms: int
    id: str
    user: str
    ad: str

    @property
    def order(self) -> tuple[int, Place]:
        """Log order."""
        return self.log_ms, self.place

    @property
    def campaign(self) -> str:
        """The campaign of its ad."""
        return next((name for name, ads in CAMPAIGNS.items() if self.ad in ads), "unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLog:
    """One topic's part of the days that were played."""

    events: Sequence[Event]
    broken: Collection[Place]
    committed: int
    aborted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What all events up to the end of the last day come to. Duplicates have the event that they repeat beside them."""

    impressions: Sequence[Event]
    clicks: Mapping[Event, Event | None]
    duplicates: Mapping[Event, Event]


def read_log(topic: str, sent: Path, days: Collection[datetime]) -> EventLog:
    """One topic's records of some days, with log times: the clock runs through all records, aborted ones too."""
    records = read_sent(sent)
    clocks: dict[int, int] = {}
    log_ms: dict[Place, int] = {}
    for one in records:
        clocks[one.partition] = max(one.at_ms, clocks.get(one.partition, 0))
        log_ms[topic, one.partition, one.offset] = clocks[one.partition]
    played = {day: some for day, some in by_day(records).items() if day in days}
    counted = [(day, one) for day, some in played.items() for one in some if one.counts]
    events: list[Event] = []
    broken: set[Place] = set()
    for day, one in counted:
        place = (topic, one.partition, one.offset)
        document = _document(one)
        if document is None:
            broken.add(place)
        else:
            events.append(Event(place=place, day=day, log_ms=log_ms[place], **document))
    return EventLog(
        events=events,
        broken=broken,
        committed=len(counted),
        aborted=sum(not one.counts for some in played.values() for one in some),
    )


def true_rows(impressions: Sequence[Event], clicks: Sequence[Event]) -> Truth:
    """One pass over both logs."""
    shown, shown_again = _once(impressions)
    clicked, clicked_again = _once(clicks)
    by_eyes: dict[tuple[str, str], list[Event]] = {}
    for one in shown:  # in log order
        by_eyes.setdefault((one.user, one.ad), []).append(one)
    attributed: dict[Event, Event | None] = {}
    for click in clicked:
        near = [
            one
            for one in by_eyes.get((click.user, click.ad), ())
            if 0 <= click.log_ms - one.log_ms < ATTRIBUTION_MS
        ]
        attributed[click] = near[-1] if near else None
    return Truth(impressions=shown, clicks=attributed, duplicates={**shown_again, **clicked_again})


def _once(events: Sequence[Event]) -> tuple[list[Event], dict[Event, Event]]:
    """In log order those that come first within the horizon, and the others with the one that came before them."""
    kept: list[Event] = []
    again: dict[Event, Event] = {}
    last: dict[str, Event] = {}
    for one in sorted(events, key=lambda e: e.order):
        before = last.get(one.id)
        if before is not None and one.log_ms - before.log_ms < HORIZON_MS:
            again[one] = before
        else:
            kept.append(one)
        last[one.id] = one
    return kept, again


def per_hour(truth: Truth) -> dict[tuple[datetime, str], Counter[str]]:
    """Counts by hour of log time and campaign: impressions, clicks, attributed."""
    hours: dict[tuple[datetime, str], Counter[str]] = {}

    def count(one: Event, *names: str) -> None:
        hour = instant(one.log_ms).replace(minute=0, second=0, microsecond=0)
        hours.setdefault((hour, one.campaign), Counter()).update(names)

    for one in truth.impressions:
        count(one, "impressions")
    for click, shown in truth.clicks.items():
        count(click, "clicks", *(["attributed"] if shown is not None else []))
    return hours


def _document(one: Sent) -> dict[str, str] | None:
    try:
        return {name: one.document[name] for name in ("id", "user", "ad")}
    except ValueError:
        return None


def instant(ms: int) -> datetime:
    """Milliseconds since 1970 as an instant."""
    return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)
