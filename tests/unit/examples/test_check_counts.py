"""The check of `counts` reports an unexpected or missing message, and one that corrects nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from examples.checks import CheckResult
from examples.checks.sent import part
from examples.counts.check import Message, apply, compare
from unit.examples.sent_lines import line, write_sent

ONE, TWO = datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 2, tzinfo=UTC)
SENT = (
    line(0, 1, 5, origin="JFK", dep_time=517),
    line(1, 1, 5, origin="JFK", dep_time=None),
    line(2, 1, 5, origin="JFK", dep_time=517, end="aborted"),
    line(3, 2, 7, origin="EWR", dep_time=None),
    line(4, 2, 8, origin="EWR", dep_time=None),
    line(5, 2, 8, origin="EWR", dep_time=801),
    line(6, 1, 5, origin="JFK", dep_time=530),  # late: its window gets counts from two days
)


def message(
    day: datetime, hour: str, origin: str, flights: int, number: int, **more: object
) -> Message:
    """Return a message of generation 1."""
    plain = Message(
        key=json.dumps([hour, origin]),
        value={"hour": hour, "origin": origin, "flights": flights},
        interval=part(day),
        generation=1,
        plan=f"{day:%d}",
        number=number,
        identity=json.dumps([hour, origin]),
        operation="row",
        corrects=None,
    )
    return replace(plain, **more)  # type: ignore[arg-type]


GOOD = (
    message(ONE, "2013-01-01T05:00:00Z", "JFK", 2, 0),
    message(TWO, "2013-01-02T07:00:00Z", "EWR", 1, 0),
    message(TWO, "2013-01-02T08:00:00Z", "EWR", 2, 1),
    message(TWO, "2013-01-01T05:00:00Z", "JFK", 1, 2),
    # The second day again, without the cancelled flights: one row changes, one is removed.
    message(
        TWO,
        "2013-01-02T08:00:00Z",
        "EWR",
        1,
        0,
        generation=3,
        plan="x",
        operation="correction",
        corrects=2,
    ),
    message(
        TWO,
        "2013-01-02T07:00:00Z",
        "EWR",
        1,
        1,
        generation=3,
        plan="x",
        operation="retraction",
        corrects=2,
    ),
)


def checked(path: Path, messages: Sequence[Message]) -> CheckResult:
    """Return the result of the check for these messages."""
    return compare(
        lambda: messages,
        write_sent(path / "sent", *SENT),
        cancelled_count={ONE: True, TWO: False},
        unchanged=[(ONE, 2)],
        corrected=[TWO],
    )


def test_messages_that_are_applied_by_their_headers_pass(tmp_path: Path) -> None:
    result = checked(tmp_path, GOOD)
    assert result.passed, list(result.lines())
    assert result.rows == len(GOOD)


Damage = Callable[[Sequence[Message]], Sequence[Message]]


@pytest.mark.parametrize(
    ("damage", "check"),
    [
        (lambda m: [*m, m[0]], "once"),
        (lambda m: m[1:], "counts"),
        (lambda m: [*m[:5]], "counts"),
        (lambda m: [replace(m[0], value={**m[0].value, "flights": 3}), *m[1:]], "counts"),
        (
            lambda m: [*m[1:3], m[3], *m[4:], message(ONE, "2013-01-01T05:00:00Z", "LGA", 2, 0)],
            "counts",
        ),
        # A message that was sent again as a new row, and a correction of a row that does not exist.
        (lambda m: [*m, replace(m[0], plan="y")], "corrections"),
        (lambda m: [m[0], *m[2:]], "corrections"),
        (lambda m: [*m[:4], replace(m[4], corrects=0), m[5]], "corrections"),
        (lambda m: m[:4], "corrections"),
        (
            lambda m: [
                *m,
                replace(m[0], plan="y", generation=2, operation="correction", corrects=1),
            ],
            "replays",
        ),
        (lambda m: [replace(m[0], key="[]"), *m[1:]], "keys"),
    ],
)
def test_the_check_names_the_damage(tmp_path: Path, damage: Damage, check: str) -> None:
    result = checked(tmp_path, damage(GOOD))
    assert not result.passed
    assert check in {f.check for f in result.findings if not f.holds}


def test_an_empty_topic_fails(tmp_path: Path) -> None:
    assert not checked(tmp_path, ()).passed


def test_a_consumer_stores_the_last_message_of_each_row() -> None:
    stored, problem = apply(GOOD)
    assert problem is None
    assert sorted((row.hour, row.flights) for row in stored.values()) == [
        ("2013-01-01T05:00:00Z", 1),
        ("2013-01-01T05:00:00Z", 2),
        ("2013-01-02T08:00:00Z", 1),
    ]
