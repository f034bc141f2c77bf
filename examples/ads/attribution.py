"""The rules of the example `ads` in plain Python: which event is a duplicate, and which impression a click belongs to.

docs/how-to/example-ads.md describes them. One pass over both logs, without intervals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from examples.checks.sent import SentRecord, by_day, read_sent

HORIZON_MS, ATTRIBUTION_MS = 6 * 3_600_000, 30 * 60_000
CAMPAIGNS = {"winter": ("a1", "a2"), "travel": ("a3", "a4"), "books": ("a5", "a6")}
Place = tuple[str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event that was sent and committed, with its place in the log; `log_ms` is its log time."""

    place: Place
    day: datetime
    log_ms: int
    id: str
    user: str
    ad: str

    @property
    def order(self) -> tuple[int, Place]:
        """The position of the event in log order."""
        return self.log_ms, self.place

    @property
    def campaign(self) -> str:
        """The campaign of its ad."""
        return next((name for name, ads in CAMPAIGNS.items() if self.ad in ads), "unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLog:
    """One topic's records of the days that were run."""

    events: Sequence[Event]
    broken: Collection[Place]
    committed: int
    aborted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The result of all events up to the end of the last day. `duplicates` maps each to the event that it repeats."""

    impressions: Sequence[Event]
    clicks: Mapping[Event, Event | None]
    duplicates: Mapping[Event, Event]


def read_log(topic: str, sent: Path, days: Collection[datetime]) -> EventLog:
    """Return one topic's records of some days; log time depends on all records, including aborted ones."""
    records = read_sent(sent)
    clocks: dict[int, int] = {}
    log_ms: dict[Place, int] = {}
    for record in records:
        clocks[record.partition] = max(record.at_ms, clocks.get(record.partition, 0))
        log_ms[topic, record.partition, record.offset] = clocks[record.partition]
    selected = {day: sent for day, sent in by_day(records).items() if day in days}
    visible = [(day, record) for day, sent in selected.items() for record in sent if record.visible]
    events: list[Event] = []
    broken: set[Place] = set()
    for day, record in visible:
        place = (topic, record.partition, record.offset)
        document = _document(record)
        if document is None:
            broken.add(place)
        else:
            events.append(Event(place=place, day=day, log_ms=log_ms[place], **document))
    return EventLog(
        events=events,
        broken=broken,
        committed=len(visible),
        aborted=sum(not record.visible for sent in selected.values() for record in sent),
    )


def true_rows(impressions: Sequence[Event], clicks: Sequence[Event]) -> Truth:
    """Apply the rules in one pass over both logs."""
    shown, repeated_impressions = _deduplicate(impressions)
    clicked, repeated_clicks = _deduplicate(clicks)
    by_user_and_ad: dict[tuple[str, str], list[Event]] = {}
    for impression in shown:  # in log order
        by_user_and_ad.setdefault((impression.user, impression.ad), []).append(impression)
    attributed: dict[Event, Event | None] = {}
    for click in clicked:
        near = [
            impression
            for impression in by_user_and_ad.get((click.user, click.ad), ())
            if 0 <= click.log_ms - impression.log_ms < ATTRIBUTION_MS
        ]
        attributed[click] = near[-1] if near else None
    return Truth(
        impressions=shown,
        clicks=attributed,
        duplicates={**repeated_impressions, **repeated_clicks},
    )


def _deduplicate(events: Sequence[Event]) -> tuple[list[Event], dict[Event, Event]]:
    """Return, in log order, the events that are first within the horizon; and the others, each with the one before."""
    first: list[Event] = []
    duplicates: dict[Event, Event] = {}
    last: dict[str, Event] = {}
    for event in sorted(events, key=lambda e: e.order):
        before = last.get(event.id)
        if before is not None and event.log_ms - before.log_ms < HORIZON_MS:
            duplicates[event] = before
        else:
            first.append(event)
        last[event.id] = event
    return first, duplicates


def per_hour(truth: Truth) -> dict[tuple[datetime, str], Counter[str]]:
    """Return counts by hour of log time and campaign: impressions, clicks, attributed."""
    hours: dict[tuple[datetime, str], Counter[str]] = {}

    def count(event: Event, *names: str) -> None:
        hour = instant(event.log_ms).replace(minute=0, second=0, microsecond=0)
        hours.setdefault((hour, event.campaign), Counter()).update(names)

    for impression in truth.impressions:
        count(impression, "impressions")
    for click, shown in truth.clicks.items():
        count(click, "clicks", *(["attributed"] if shown is not None else []))
    return hours


def _document(record: SentRecord) -> dict[str, str] | None:
    try:
        return {name: record.document[name] for name in ("id", "user", "ad")}
    except ValueError:
        return None


def instant(ms: int) -> datetime:
    """Return milliseconds since 1970 as a datetime."""
    return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)
