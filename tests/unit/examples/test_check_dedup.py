"""The check of `dedup` reports an unexpected, missing or wrong alarm or e-mail."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from examples.checks import CheckResult
from examples.dedup.check import Mail, compare
from examples.dedup.scenario import alarms
from unit.examples.sent_lines import at, write_sent

START = datetime(2013, 1, 1, tzinfo=UTC)
BOUNDARIES = [START + timedelta(hours=hour) for hour in (0, 2, 3)]
MINUTE_MS = 60_000


def alarm(
    offset: int, minute: int, device: str, *, partition: int = 0, end: str = "plain"
) -> dict[str, Any]:
    """Return the producer's record of one alarm; `minute` is its timestamp."""
    value = {"device": device, "owner": f"{device}@example.org", "what": f"at {minute}"}
    return {
        "partition": partition,
        "offset": offset,
        "at_ms": at(1, 0) + minute * MINUTE_MS,
        "end": end,
        "key": device,
        "value": json.dumps(value),
    }


SENT = (
    alarm(0, 10, "pump"),  # kept
    alarm(1, 69, "pump"),  # 59 minutes later
    alarm(2, 110, "lift"),  # kept
    alarm(3, 110, "valve", end="aborted"),
    alarm(4, 130, "lift"),  # of the next interval, 20 minutes later
    alarm(5, 129, "pump"),  # its clock is behind: log time 130, 61 minutes after 69: kept
    alarm(0, 131, "fan", partition=1),  # dropped
    alarm(6, 131, "fan", partition=0),  # kept: the same time, the smaller partition
    alarm(7, 200, "late"),  # after the last interval
)
KEPT = ((0, 0), (0, 2), (0, 5), (0, 6))


def row(partition: int, offset: int) -> dict[str, Any]:
    """Return the expected row of the table."""
    record = next(s for s in SENT if (s["partition"], s["offset"]) == (partition, offset))
    return {**json.loads(record["value"]), "_kafka_partition": partition, "_offset": offset}


def mail(device: str, number: int) -> Mail:
    return Mail(
        message_id=f"ts1-{number}@example.org",
        to=f"{device}@example.org",
        subject=f"Alarms of {device}",
    )


@dataclass(frozen=True)
class CheckInput:
    """The input of the check."""

    rows: Sequence[dict[str, Any]] = field(default_factory=lambda: [row(*p) for p in KEPT])
    mails: Sequence[Mail] = field(
        default_factory=lambda: [mail(d, n) for n, d in enumerate(("lift", "fan", "pump"))]
    )
    replays: Sequence[tuple[str, int]] = (("a clear", 0),)


def checked(path: Path, given: CheckInput) -> CheckResult:
    sent = write_sent(path / "sent", *SENT)
    return compare(given.rows, given.mails, sent, boundaries=BOUNDARIES, replays=given.replays)


def test_rows_that_equal_one_pass_over_the_log_pass(tmp_path: Path) -> None:
    result = checked(tmp_path, CheckInput())
    assert result.passed, list(result.lines())
    assert result.rows == len(KEPT) + 3


Damage = Callable[[CheckInput], CheckInput]


@pytest.mark.parametrize(
    ("damage", "check"),
    [
        pytest.param(lambda f: replace(f, rows=[*f.rows, f.rows[0]]), "once", id="a row twice"),
        pytest.param(
            lambda f: replace(f, rows=[*f.rows, row(0, 4)]), "first alarms", id="a duplicate"
        ),
        pytest.param(
            lambda f: replace(f, rows=[*f.rows, row(0, 3)]), "first alarms", id="an aborted record"
        ),
        pytest.param(
            lambda f: replace(f, rows=f.rows[1:]), "first alarms", id="a first alarm is missing"
        ),
        pytest.param(
            lambda f: replace(f, rows=[*f.rows[:3], row(1, 0)]),
            "first alarms",
            id="the wrong alarm of two",
        ),
        pytest.param(
            lambda f: replace(f, rows=[{**f.rows[0], "what": "else"}, *f.rows[1:]]),
            "first alarms",
            id="another value",
        ),
        pytest.param(
            lambda f: replace(f, mails=[*f.mails, mail("lift", 9)]),
            "one e-mail",
            id="a second e-mail",
        ),
        pytest.param(
            lambda f: replace(f, mails=[*f.mails, f.mails[0]]),
            "addresses",
            id="one Message-ID twice",
        ),
        pytest.param(
            lambda f: replace(f, mails=f.mails[1:]), "one e-mail", id="an e-mail is missing"
        ),
        pytest.param(
            lambda f: replace(f, mails=[*f.mails, mail("valve", 9)]),
            "one e-mail",
            id="an e-mail without an alarm",
        ),
        pytest.param(
            lambda f: replace(f, mails=[replace(f.mails[0], to="x@example.org"), *f.mails[1:]]),
            "addresses",
            id="a wrong address",
        ),
        pytest.param(
            lambda f: replace(f, replays=[("a clear", 1)]), "replays", id="a replay that sends"
        ),
        pytest.param(lambda f: replace(f, replays=[]), "replays", id="no replay"),
    ],
)
def test_the_check_names_the_damage(tmp_path: Path, damage: Damage, check: str) -> None:
    result = checked(tmp_path, damage(CheckInput()))
    assert not result.passed
    assert check in {f.check for f in result.findings if not f.holds}


def test_a_run_without_a_duplicate_across_intervals_fails(tmp_path: Path) -> None:
    sent = write_sent(tmp_path / "sent", *SENT)
    result = compare(
        [row(*p) for p in KEPT],
        CheckInput().mails,
        sent,
        boundaries=BOUNDARIES[::2],
        replays=[("-", 0)],
    )
    assert [f.check for f in result.findings if not f.holds] == ["lookback"]


def test_the_alarms_are_the_same_in_each_run() -> None:
    assert alarms() == alarms()
    # The killed hour has new devices: more than one e-mail, in addition to the one in doubt.
    devices = [{json.loads(r.value)["device"] for r in hour} for hour in alarms()]
    assert len(devices[3] - devices[0] - devices[1] - devices[2]) > 3
