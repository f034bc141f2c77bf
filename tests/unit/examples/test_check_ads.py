"""The check of `ads` reports a wrong row in any table, an unexpected message and a record that is not counted."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from examples.ads.check import CLICKS, IMPRESSIONS, LakeContents, compare
from examples.checks import CheckResult
from examples.checks.sent import part
from examples.counts.check import Message
from unit.examples.sent_lines import write_sent

ONE, TWO = datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 2, tzinfo=UTC)
Row = dict[str, Any]


def at(text: str) -> datetime:
    """Return a time; `1 05:10` is the day of January 2013 and the time."""
    day, _, time = text.partition(" ")
    return datetime.fromisoformat(f"2013-01-{int(day):02}T{time}:00+00:00")


def sent(offset: int, when: str, name: str, user: str, ad: str, end: str = "committed") -> Row:
    """Return the producer's record of one event."""
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
        sent(2, "1 06:00", "i1", "u1", "a1"),  # a duplicate
        sent(3, "1 13:00", "i1", "u1", "a1"),  # seven hours later: no duplicate
        sent(4, "1 14:00", "i2", "u1", "a1") | {"value": "{"},
        sent(5, "1 23:50", "i3", "u1", "a1"),
        sent(6, "1 23:40", "i4", "u2", "a3"),  # late: its log time is 23:50
    ),
    CLICKS: (
        sent(0, "1 05:10", "c1", "u1", "a1"),
        sent(1, "1 05:20", "c1", "u1", "a1"),  # a duplicate
        sent(
            2, "1 06:10", "c2", "u1", "a1"
        ),  # only a duplicate is within half an hour: unattributed
        sent(3, "1 23:55", "c3", "u9", "a9"),  # an unknown ad
        sent(4, "2 00:05", "c4", "u1", "a1"),  # attributed to the day before
        sent(5, "2 00:15", "c5", "u2", "a3"),  # also attributed to the day before, by log time
        sent(6, "2 00:20", "c3", "u9", "a9"),  # a duplicate over midnight
        sent(7, "2 00:20", "c6", "u1", "a1"),  # exactly half an hour later: unattributed
    ),
}


def event(topic: str, offset: int, **columns: Any) -> Row:
    """Return a row of a table of events."""
    return {**columns, "_topic": topic, "_kafka_partition": 0, "_offset": offset}


def known(name: str, user: str, ad: str, campaign: str) -> Row:
    """Return the columns of an event with its campaign."""
    return {"id": name, "user": user, "ad": ad, "campaign": campaign}


def hour(when: str, campaign: str, impressions: int, clicks: int, attributed: int) -> Row:
    """Return a row of `per_hour`."""
    return {
        "hour": at(when),
        "campaign": campaign,
        "impressions": impressions,
        "clicks": clicks,
        "attributed": attributed,
    }


USER = {"user": "u1", "ad": "a1", "campaign": "winter"}
TABLES: dict[str, tuple[Row, ...]] = {
    "impressions": (
        event(IMPRESSIONS, 0, id="i1", **USER),
        event(IMPRESSIONS, 3, id="i1", **USER),
        event(IMPRESSIONS, 5, id="i3", **USER),
        event(IMPRESSIONS, 6, **known("i4", "u2", "a3", "travel")),
    ),
    "clicks": (
        event(CLICKS, 0, id="c1", **USER, impression="i1", shown_at=at("1 05:00")),
        event(CLICKS, 4, id="c4", **USER, impression="i3", shown_at=at("1 23:50")),
        event(
            CLICKS,
            5,
            **known("c5", "u2", "a3", "travel"),
            impression="i4",
            shown_at=at("1 23:50"),
        ),
    ),
    "unattributed": (
        event(CLICKS, 2, id="c2", **USER),
        event(CLICKS, 3, **known("c3", "u9", "a9", "unknown")),
        event(CLICKS, 7, id="c6", **USER),
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
LAKE = LakeContents(
    tables=TABLES, accounts={IMPRESSIONS: {"aborted": 1}, CLICKS: {"records": 8, "aborted": 0}}
)


def message(number: int, row: Row) -> Message:
    """Return the message of a row."""
    value = row | {"hour": f"{row['hour']:%Y-%m-%dT%H:%M:%SZ}"}
    day = row["hour"].replace(hour=0)
    return Message(
        key=json.dumps([value["hour"], value["campaign"]]),
        value=value,
        interval=part(day),
        generation=1,
        plan=f"{day:%d}",
        number=number,
        identity=str(number),
        operation="row",
        corrects=None,
    )


MESSAGES = tuple(message(number, row) for number, row in enumerate(TABLES["per_hour"]))
Input = tuple[LakeContents, tuple[Message, ...]]


def checked(path: Path, given: Input) -> CheckResult:
    """Return the result of the check for a lake and a topic."""
    files = {topic: write_sent(path / topic, *lines) for topic, lines in SENT.items()}
    return compare(given[0], given[1], files, days=[ONE, TWO], unchanged=[(ONE, 2)])


def test_rows_and_messages_that_follow_the_rules_pass(tmp_path: Path) -> None:
    result = checked(tmp_path, (LAKE, MESSAGES))
    assert result.passed, list(result.lines())


def lake(table: str, *rows: Row) -> Input:
    """Return the correct lake with other rows in one table."""
    return replace(LAKE, tables={**TABLES, table: rows}), MESSAGES


def topic(*messages: Message) -> Input:
    """Return the correct lake with other messages."""
    return LAKE, messages


CLICK, HOUR = TABLES["clicks"], TABLES["per_hour"]


@pytest.mark.parametrize(
    ("given", "checks"),
    [
        (lake("impressions", *TABLES["impressions"][1:]), {"impressions", "audit shown"}),
        (lake("impressions", *TABLES["impressions"], TABLES["impressions"][0]), {"impressions"}),
        # A duplicate that was kept, and one that was dropped and is not in the table of duplicates.
        (
            lake("impressions", *TABLES["impressions"], event(IMPRESSIONS, 2, id="i1", **USER)),
            {"impressions", "audit shown"},
        ),
        (lake("duplicates", *TABLES["duplicates"][:2]), {"duplicates", "audit clicked"}),
        (lake("impressions", TABLES["impressions"][0] | {"campaign": "x"}), {"impressions"}),
        # Attributed to a wrong impression, missing, or attributed without an impression.
        (lake("clicks", CLICK[0] | {"impression": "i3"}, *CLICK[1:]), {"clicks"}),
        (lake("clicks", CLICK[0] | {"shown_at": at("1 06:00")}, *CLICK[1:]), {"clicks"}),
        (lake("clicks", *CLICK[:2]), {"clicks", "audit clicked"}),
        (lake("unattributed", *TABLES["unattributed"], CLICK[0]), {"unattributed"}),
        (lake("unattributed"), {"unattributed", "audit clicked"}),
        (lake("dead_letters"), {"dead letters", "audit shown"}),
        (lake("per_hour", *HOUR[1:]), {"per hour", "the topic", "audit shown"}),
        (lake("per_hour", HOUR[0] | {"attributed": 0}, *HOUR[1:]), {"per hour", "the topic"}),
        (lake("per_hour", *HOUR, HOUR[0]), {"per hour", "the topic"}),
        (topic(*MESSAGES[1:]), {"the topic"}),
        (topic(*MESSAGES, MESSAGES[0]), {"the topic"}),
        (topic(replace(MESSAGES[0], generation=2), *MESSAGES[1:]), {"the topic"}),
        (topic(replace(MESSAGES[0], operation="correction"), *MESSAGES[1:]), {"the topic"}),
        (topic(replace(MESSAGES[0], key="[]"), *MESSAGES[1:]), {"the topic"}),
        (
            topic(replace(MESSAGES[0], value=MESSAGES[0].value | {"clicks": 2}), *MESSAGES[1:]),
            {"the topic"},
        ),
        (
            (replace(LAKE, accounts={**LAKE.accounts, IMPRESSIONS: {"aborted": 2}}), MESSAGES),
            {"audit shown"},
        ),
    ],
)
def test_the_check_names_the_damage(tmp_path: Path, given: Input, checks: set[str]) -> None:
    result = checked(tmp_path, given)
    assert not result.passed
    assert checks <= {f.check for f in result.findings if not f.holds}


def test_a_run_without_a_lookback_over_midnight_fails(tmp_path: Path) -> None:
    result = compare(
        LAKE,
        MESSAGES,
        {topic: write_sent(tmp_path / topic, *lines) for topic, lines in SENT.items()},
        days=[ONE],
        unchanged=[],
    )
    assert "over midnight" in {f.check for f in result.findings if not f.holds}
