"""The judge of `counts` is awake: a message too many, too few or that fits nothing is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from examples.checks import Ruling
from examples.checks.sent import part
from examples.counts.check import Message, apply, judge
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
    """A message of generation 1."""
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
    # The second day again, without the cancelled flights: one row changes, one holds no more.
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


def judged(path: Path, messages: Sequence[Message]) -> Ruling:
    """What the judge says of these messages."""
    return judge(
        lambda: messages,
        write_sent(path / "sent", *SENT),
        cancelled_count={ONE: True, TWO: False},
        silent=[(ONE, 2)],
        corrected=[TWO],
    )


def test_what_follows_the_headers_passes(tmp_path: Path) -> None:
    found = judged(tmp_path, GOOD)
    assert found.passed, list(found.lines())
    assert found.rows == len(GOOD)


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
        # A second send that calls itself new, and a correction of what never was there.
        (lambda m: [*m, replace(m[0], plan="y")], "corrections"),
        (lambda m: [m[0], *m[2:]], "corrections"),
        (lambda m: [*m[:4], replace(m[4], corrects=0), m[5]], "corrections"),
        (lambda m: m[:4], "corrections"),
        (
            lambda m: [
                *m,
                replace(m[0], plan="y", generation=2, operation="correction", corrects=1),
            ],
            "silence",
        ),
        (lambda m: [replace(m[0], key="[]"), *m[1:]], "keys"),
    ],
)
def test_damage_is_named(tmp_path: Path, damage: Damage, check: str) -> None:
    found = judged(tmp_path, damage(GOOD))
    assert not found.passed
    assert check in {one.check for one in found.findings if not one.holds}


def test_nothing_at_all_is_no_pass(tmp_path: Path) -> None:
    assert not judged(tmp_path, ()).passed


def test_what_a_consumer_holds_is_what_was_said_last() -> None:
    held, problem = apply(GOOD)
    assert problem is None
    assert sorted((row.hour, row.flights) for row in held.values()) == [
        ("2013-01-01T05:00:00Z", 1),
        ("2013-01-01T05:00:00Z", 2),
        ("2013-01-02T08:00:00Z", 1),
    ]
