"""The judge of `ads` is awake: a wrong row in any table, a message too many and a record that nobody counts are named."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from examples.ads.check import CLICKS, IMPRESSIONS, Found, judge
from examples.checks import Ruling
from examples.checks.sent import part
from examples.counts.check import Message
from unit.examples.sent_lines import write_sent

ONE, TWO = datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 2, tzinfo=UTC)
Row = dict[str, Any]


def at(text: str) -> datetime:
    """A moment, as `1 05:10`: the day of January 2013 and the time."""
    day, _, time = text.partition(" ")
    return datetime.fromisoformat(f"2013-01-{int(day):02}T{time}:00+00:00")


def sent(offset: int, when: str, name: str, user: str, ad: str, end: str = "committed") -> Row:
    """What a producer notes of one event."""
    return {
        "partition": 0,
        "offset": offset,
        "at_ms": round(at(when).timestamp() * 1000),
        "end": end,
        "key": user,
        "value": json.dumps({"id": name, "user": user, "ad": ad}),
    }


SENT = {
    IMPRESSIONS: (
        sent(0, "1 05:00", "i1", "u1", "a1"),
        sent(1, "1 05:05", "i9", "u1", "a1", end="aborted"),
        sent(2, "1 06:00", "i1", "u1", "a1"),  # the same one again
        sent(3, "1 13:00", "i1", "u1", "a1"),  # seven hours after: counts
        sent(4, "1 14:00", "i2", "u1", "a1") | {"value": "{"},
        sent(5, "1 23:50", "i3", "u1", "a1"),
        sent(6, "1 23:40", "i4", "u2", "a3"),  # late: its log time is 23:50
    ),
    CLICKS: (
        sent(0, "1 05:10", "c1", "u1", "a1"),
        sent(1, "1 05:20", "c1", "u1", "a1"),  # the same one again
        sent(2, "1 06:10", "c2", "u1", "a1"),  # half an hour after a duplicate counts for nothing
        sent(3, "1 23:55", "c3", "u9", "a9"),  # nobody knows the ad
        sent(4, "2 00:05", "c4", "u1", "a1"),  # goes back to the day before
        sent(5, "2 00:15", "c5", "u2", "a3"),  # so does this one, by log time alone
        sent(6, "2 00:20", "c3", "u9", "a9"),  # a duplicate over midnight
        sent(7, "2 00:20", "c6", "u1", "a1"),  # half an hour after: not within it
    ),
}


def event(topic: str, offset: int, **columns: Any) -> Row:
    """A row of a table of events."""
    return {**columns, "_topic": topic, "_kafka_partition": 0, "_offset": offset}


def known(name: str, user: str, ad: str, campaign: str) -> Row:
    """Its columns."""
    return {"id": name, "user": user, "ad": ad, "campaign": campaign}


def hour(when: str, campaign: str, impressions: int, clicks: int, attributed: int) -> Row:
    """A row of `per_hour`."""
    return {
        "hour": at(when),
        "campaign": campaign,
        "impressions": impressions,
        "clicks": clicks,
        "attributed": attributed,
    }


EYES = {"user": "u1", "ad": "a1", "campaign": "winter"}
TABLES: dict[str, tuple[Row, ...]] = {
    "impressions": (
        event(IMPRESSIONS, 0, id="i1", **EYES),
        event(IMPRESSIONS, 3, id="i1", **EYES),
        event(IMPRESSIONS, 5, id="i3", **EYES),
        event(IMPRESSIONS, 6, **known("i4", "u2", "a3", "travel")),
    ),
    "clicks": (
        event(CLICKS, 0, id="c1", **EYES, impression="i1", shown_at=at("1 05:00")),
        event(CLICKS, 4, id="c4", **EYES, impression="i3", shown_at=at("1 23:50")),
        event(
            CLICKS,
            5,
            **known("c5", "u2", "a3", "travel"),
            impression="i4",
            shown_at=at("1 23:50"),
        ),
    ),
    "unattributed": (
        event(CLICKS, 2, id="c2", **EYES),
        event(CLICKS, 3, **known("c3", "u9", "a9", "unknown")),
        event(CLICKS, 7, id="c6", **EYES),
    ),
    "duplicates": (
        event(IMPRESSIONS, 2, id="i1"),
        event(CLICKS, 1, id="c1"),
        event(CLICKS, 6, id="c3"),
    ),
    "dead_letters": (event(IMPRESSIONS, 4),),
    "per_hour": (
        hour("1 05:00", "winter", 1, 1, 1),
        hour("1 06:00", "winter", 0, 1, 0),
        hour("1 13:00", "winter", 1, 0, 0),
        hour("1 23:00", "winter", 1, 0, 0),
        hour("1 23:00", "travel", 1, 0, 0),
        hour("1 23:00", "unknown", 0, 1, 0),
        hour("2 00:00", "winter", 0, 2, 1),
        hour("2 00:00", "travel", 0, 1, 1),
    ),
}
LAKE = Found(
    tables=TABLES, accounts={IMPRESSIONS: {"aborted": 1}, CLICKS: {"records": 8, "aborted": 0}}
)


def message(number: int, row: Row) -> Message:
    """The message of a row."""
    told = row | {"hour": f"{row['hour']:%Y-%m-%dT%H:%M:%SZ}"}
    day = row["hour"].replace(hour=0)
    return Message(
        key=json.dumps([told["hour"], told["campaign"]]),
        value=told,
        interval=part(day),
        generation=1,
        plan=f"{day:%d}",
        number=number,
        identity=str(number),
        operation="row",
        corrects=None,
    )


TOLD = tuple(message(number, row) for number, row in enumerate(TABLES["per_hour"]))
Seen = tuple[Found, tuple[Message, ...]]


def judged(path: Path, seen: Seen) -> Ruling:
    """What the judge says of a lake and a topic."""
    files = {topic: write_sent(path / topic, *lines) for topic, lines in SENT.items()}
    return judge(seen[0], seen[1], files, days=[ONE, TWO], silent=[(ONE, 2)])


def test_what_the_rules_give_passes(tmp_path: Path) -> None:
    found = judged(tmp_path, (LAKE, TOLD))
    assert found.passed, list(found.lines())


def lake(table: str, *rows: Row) -> Seen:
    """The good lake but for one table."""
    return replace(LAKE, tables={**TABLES, table: rows}), TOLD


def told(*messages: Message) -> Seen:
    """The good lake, and other messages."""
    return LAKE, messages


CLICK, HOUR = TABLES["clicks"], TABLES["per_hour"]


@pytest.mark.parametrize(
    ("seen", "checks"),
    [
        (lake("impressions", *TABLES["impressions"][1:]), {"impressions", "audit shown"}),
        (lake("impressions", *TABLES["impressions"], TABLES["impressions"][0]), {"impressions"}),
        # A duplicate that was kept, and one that was dropped without a word.
        (
            lake("impressions", *TABLES["impressions"], event(IMPRESSIONS, 2, id="i1", **EYES)),
            {"impressions", "audit shown"},
        ),
        (lake("duplicates", *TABLES["duplicates"][:2]), {"duplicates", "audit clicked"}),
        (lake("impressions", TABLES["impressions"][0] | {"campaign": "x"}), {"impressions"}),
        # Attributed to another impression, to none, or where there is none.
        (lake("clicks", CLICK[0] | {"impression": "i3"}, *CLICK[1:]), {"clicks"}),
        (lake("clicks", CLICK[0] | {"shown_at": at("1 06:00")}, *CLICK[1:]), {"clicks"}),
        (lake("clicks", *CLICK[:2]), {"clicks", "audit clicked"}),
        (lake("unattributed", *TABLES["unattributed"], CLICK[0]), {"unattributed"}),
        (lake("unattributed"), {"unattributed", "audit clicked"}),
        (lake("dead_letters"), {"dead letters", "audit shown"}),
        (lake("per_hour", *HOUR[1:]), {"per hour", "the topic", "audit shown"}),
        (lake("per_hour", HOUR[0] | {"attributed": 0}, *HOUR[1:]), {"per hour", "the topic"}),
        (lake("per_hour", *HOUR, HOUR[0]), {"per hour", "the topic"}),
        (told(*TOLD[1:]), {"the topic"}),
        (told(*TOLD, TOLD[0]), {"the topic"}),
        (told(replace(TOLD[0], generation=2), *TOLD[1:]), {"the topic"}),
        (told(replace(TOLD[0], operation="correction"), *TOLD[1:]), {"the topic"}),
        (told(replace(TOLD[0], key="[]"), *TOLD[1:]), {"the topic"}),
        (
            told(replace(TOLD[0], value=TOLD[0].value | {"clicks": 2}), *TOLD[1:]),
            {"the topic"},
        ),
        (
            (replace(LAKE, accounts={**LAKE.accounts, IMPRESSIONS: {"aborted": 2}}), TOLD),
            {"audit shown"},
        ),
    ],
)
def test_damage_is_named(tmp_path: Path, seen: Seen, checks: set[str]) -> None:
    found = judged(tmp_path, seen)
    assert not found.passed
    assert checks <= {one.check for one in found.findings if not one.holds}


def test_where_nothing_reaches_over_midnight_nothing_is_shown(tmp_path: Path) -> None:
    found = judge(
        LAKE,
        TOLD,
        {topic: write_sent(tmp_path / topic, *lines) for topic, lines in SENT.items()},
        days=[ONE],
        silent=[],
    )
    assert "over midnight" in {one.check for one in found.findings if not one.holds}
