"""The check of `average` reports a wrong average, a state of another version and a wrong list of stale days."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from examples.average.check import StaleStatus, Version, compare
from examples.checks import CheckResult
from examples.checks.sent import part
from unit.examples.sent_lines import line, write_sent

ONE, TWO = datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 2, tzinfo=UTC)
SENT = (
    line(0, 1, 5, sensor="s3", celsius="20.50"),
    line(1, 1, 6, sensor="s3", celsius="21.00"),
    line(2, 1, 7, sensor="s1", celsius="-1.01"),
    line(3, 1, 8, sensor="s1", celsius="99.00", end="aborted"),
    line(4, 2, 5, sensor="s3", celsius="20.00"),
)
Row = dict[str, Any]


def row(sensor: str, day: datetime, readings: int, total: str, average: str | None = None) -> Row:
    """Return a row of `averages`, or of `sensor_parts` if there is no average."""
    part_row = {
        "sensor": sensor,
        "as_of": day + timedelta(days=1),
        "readings": readings,
        "total": Decimal(total),
    }
    return part_row if average is None else part_row | {"average": Decimal(average)}


# Before the sensor was corrected; the second day ran first, and read nothing of the first day.
EARLY = Version(
    version=2,
    days=(TWO,),
    averages=[row("s3", TWO, 1, "20.00", "20")],
    parts=[row("s3", TWO, 1, "20.00")],
)
PARTS = [row("s3", ONE, 2, "40.50"), row("s1", ONE, 1, "-1.01"), row("s3", TWO, 1, "19.50")]
AVERAGES = [
    row("s3", ONE, 2, "40.50", "20.25"),
    row("s1", ONE, 1, "-1.01", "-1.01"),
    row("s3", TWO, 3, "60.00", "20.000000"),
    row("s1", TWO, 1, "-1.01", "-1.01"),
]
# The first day by the job that corrects; the second day is stale now.
MIDDLE = Version(
    version=4,
    days=(ONE,),
    averages=[*AVERAGES[:2], *EARLY.averages],
    parts=[*PARTS[:2], *EARLY.parts],
)
LAST = Version(version=6, days=(TWO,), averages=AVERAGES, parts=PARTS)


@dataclass(frozen=True)
class CheckInput:
    """The input of the check."""

    versions: Sequence[Version] = (EARLY, MIDDLE, LAST)
    statuses: Sequence[StaleStatus] = (
        StaleStatus(version=3, stale=frozenset()),
        StaleStatus(version=5, stale=frozenset({TWO})),
        StaleStatus(version=7, stale=frozenset()),
    )
    files: Sequence[Row] = tuple(AVERAGES)

    def with_last(self, **changed: Any) -> CheckInput:
        """Return the same input with another last version."""
        return replace(self, versions=(EARLY, MIDDLE, replace(LAST, **changed)))


def checked(path: Path, given: CheckInput) -> CheckResult:
    """Return the result of the check."""
    folder = path / "averages"
    folder.mkdir()
    for day in (ONE, TWO):
        rows = [r for r in given.files if r["as_of"] == day + timedelta(days=1)]
        lines = [json.dumps(r, default=str) + "\n" for r in rows]
        (folder / f"{part(day)}.jsonl").write_text("".join(lines))
    return compare(
        given.versions,
        folder,
        write_sent(path / "sent", *SENT),
        days=[ONE, TWO],
        calibrated=True,
        statuses=given.statuses,
    )


def test_averages_that_equal_one_pass_pass(tmp_path: Path) -> None:
    result = checked(tmp_path, CheckInput())
    assert result.passed, list(result.lines())
    assert result.rows == len(AVERAGES)


Damage = Callable[[CheckInput], CheckInput]


@pytest.mark.parametrize(
    ("damage", "checks"),
    [
        (lambda s: s.with_last(averages=AVERAGES[1:]), {"the averages", "stale"}),
        (
            lambda s: s.with_last(averages=[row("s3", ONE, 2, "40.50", "20.26"), *AVERAGES[1:]]),
            {"the averages", "stale"},
        ),
        (lambda s: s.with_last(averages=[*AVERAGES, AVERAGES[0]]), {"the averages"}),
        (lambda s: s.with_last(averages=[*AVERAGES, row("s9", TWO, 1, "1", "1")]), {"same swap"}),
        # A state with the aborted reading, or with readings of another day.
        (
            lambda s: s.with_last(parts=[PARTS[0], row("s1", ONE, 2, "97.99"), PARTS[2]]),
            {"the state", "same swap"},
        ),
        (
            lambda s: s.with_last(parts=[*PARTS[:2], row("s3", TWO, 3, "60.00")]),
            {"the state", "same swap"},
        ),
        # Averages that were committed before their state, or after it.
        (
            lambda s: replace(s, versions=(EARLY, replace(MIDDLE, parts=EARLY.parts), LAST)),
            {"same swap"},
        ),
        (
            lambda s: replace(s, versions=(replace(EARLY, averages=[]), MIDDLE, LAST)),
            {"same swap", "stale"},
        ),
        (lambda s: replace(s, statuses=[s.statuses[0], s.statuses[2]]), {"stale"}),
        (lambda s: replace(s, statuses=[replace(s.statuses[1], version=7)]), {"stale"}),
        (
            lambda s: replace(s, statuses=[replace(s.statuses[0], version=5), s.statuses[2]]),
            {"stale"},
        ),
        (lambda s: replace(s, statuses=s.statuses[:2]), {"stale"}),
        (lambda s: replace(s, files=AVERAGES[1:]), {"the folder"}),
        (
            lambda s: replace(s, files=[*AVERAGES[:2], *EARLY.averages, AVERAGES[3]]),
            {"the folder"},
        ),
    ],
)
def test_the_check_names_the_damage(tmp_path: Path, damage: Damage, checks: set[str]) -> None:
    result = checked(tmp_path, damage(CheckInput()))
    assert not result.passed
    assert checks <= {f.check for f in result.findings if not f.holds}


def test_the_check_names_an_unexpected_file(tmp_path: Path) -> None:
    folder = tmp_path / "averages"
    assert checked(tmp_path, CheckInput()).passed
    (folder / f"{part(TWO + timedelta(days=1))}.jsonl").touch()
    sent = write_sent(tmp_path / "sent", *SENT)
    given = CheckInput()
    result = compare(
        given.versions, folder, sent, days=[ONE, TWO], calibrated=True, statuses=given.statuses
    )
    assert {f.check for f in result.findings if not f.holds} == {"the folder"}
