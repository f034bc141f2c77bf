"""The judge of `dedup` is awake: an alarm or an e-mail too many, too few or of another one is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from examples.checks import Ruling
from examples.dedup.check import Mail, judge
from examples.dedup.play import alarms
from unit.examples.sent_lines import at, write_sent

START = datetime(2013, 1, 1, tzinfo=UTC)
EDGES = [START + timedelta(hours=hour) for hour in (0, 2, 3)]
MINUTE_MS = 60_000


def alarm(
    offset: int, minute: int, device: str, *, partition: int = 0, end: str = "plain"
) -> dict[str, Any]:
    """One record, and when it says that it was sent."""
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
    alarm(0, 10, "pump"),  # stays
    alarm(1, 69, "pump"),  # 59 minutes later
    alarm(2, 110, "lift"),  # stays
    alarm(3, 110, "door", end="aborted"),
    alarm(4, 130, "lift"),  # of the next interval, 20 minutes later
    alarm(5, 129, "pump"),  # its clock is behind: log time 130, 61 minutes after 69: stays
    alarm(0, 131, "gate", partition=1),  # stays
    alarm(6, 131, "gate", partition=0),  # stays instead: the same moment, the smaller partition
    alarm(7, 200, "late"),  # was not played
)
STAYS = ((0, 0), (0, 2), (0, 5), (0, 6))


def row(partition: int, offset: int) -> dict[str, Any]:
    """A row of the table as it should be."""
    told = next(s for s in SENT if (s["partition"], s["offset"]) == (partition, offset))
    return {**json.loads(told["value"]), "_kafka_partition": partition, "_offset": offset}


def mail(device: str, number: int) -> Mail:
    return Mail(
        message_id=f"ts1-{number}@example.org",
        to=f"{device}@example.org",
        subject=f"Alarms of {device}",
    )


@dataclass(frozen=True)
class Found:
    """What the judge looks at."""

    rows: Sequence[dict[str, Any]] = field(default_factory=lambda: [row(*p) for p in STAYS])
    mails: Sequence[Mail] = field(
        default_factory=lambda: [mail(d, n) for n, d in enumerate(("lift", "gate", "pump"))]
    )
    silent: Sequence[tuple[str, int]] = (("a clear", 0),)


def judged(path: Path, found: Found) -> Ruling:
    sent = write_sent(path / "sent", *SENT)
    return judge(found.rows, found.mails, sent, edges=EDGES, silent=found.silent)


def test_one_pass_over_the_log_is_what_passes(tmp_path: Path) -> None:
    found = judged(tmp_path, Found())
    assert found.passed, list(found.lines())
    assert found.rows == len(STAYS) + 3


Damage = Callable[[Found], Found]


@pytest.mark.parametrize(
    ("damage", "check"),
    [
        pytest.param(lambda f: replace(f, rows=[*f.rows, f.rows[0]]), "once", id="a row twice"),
        pytest.param(
            lambda f: replace(f, rows=[*f.rows, row(0, 4)]), "first ones", id="a duplicate"
        ),
        pytest.param(
            lambda f: replace(f, rows=[*f.rows, row(0, 3)]), "first ones", id="an aborted one"
        ),
        pytest.param(
            lambda f: replace(f, rows=f.rows[1:]), "first ones", id="a first one is missing"
        ),
        pytest.param(
            lambda f: replace(f, rows=[*f.rows[:3], row(1, 0)]), "first ones", id="the tie"
        ),
        pytest.param(
            lambda f: replace(f, rows=[{**f.rows[0], "what": "else"}, *f.rows[1:]]),
            "first ones",
            id="another value",
        ),
        pytest.param(
            lambda f: replace(f, mails=[*f.mails, mail("lift", 9)]), "one e-mail", id="a second one"
        ),
        pytest.param(
            lambda f: replace(f, mails=[*f.mails, f.mails[0]]), "to whom", id="one Message-ID twice"
        ),
        pytest.param(lambda f: replace(f, mails=f.mails[1:]), "one e-mail", id="one is missing"),
        pytest.param(
            lambda f: replace(f, mails=[*f.mails, mail("door", 9)]), "one e-mail", id="of no alarm"
        ),
        pytest.param(
            lambda f: replace(f, mails=[replace(f.mails[0], to="x@example.org"), *f.mails[1:]]),
            "to whom",
            id="another's address",
        ),
        pytest.param(
            lambda f: replace(f, silent=[("a clear", 1)]), "silence", id="a replay that sends"
        ),
        pytest.param(lambda f: replace(f, silent=[]), "silence", id="no replay"),
    ],
)
def test_damage_is_named(tmp_path: Path, damage: Damage, check: str) -> None:
    found = judged(tmp_path, damage(Found()))
    assert not found.passed
    assert check in {one.check for one in found.findings if not one.holds}


def test_a_play_in_which_nothing_crosses_an_interval_shows_nothing(tmp_path: Path) -> None:
    sent = write_sent(tmp_path / "sent", *SENT)
    found = judge(
        [row(*p) for p in STAYS], Found().mails, sent, edges=EDGES[::2], silent=[("-", 0)]
    )
    assert [one.check for one in found.findings if not one.holds] == ["across edges"]


def test_the_alarms_are_the_same_at_each_play() -> None:
    assert alarms() == alarms()
    # By hand and by chance: new devices of the struck hour, more of them than the one e-mail that is in doubt.
    known = [{json.loads(r.value)["device"] for r in hour} for hour in alarms()]
    assert len(known[3] - known[0] - known[1] - known[2]) > 3
