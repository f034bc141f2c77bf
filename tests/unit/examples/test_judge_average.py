"""The judge of `average` is awake: a wrong average, a torn swap and a word too many of what is stale are each named."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from examples.average.check import Told, Version, judge
from examples.checks import Ruling
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
    """A row of `averages`, or without an average one of `sensor_parts`."""
    found = {
        "sensor": sensor,
        "as_of": day + timedelta(days=1),
        "readings": readings,
        "total": Decimal(total),
    }
    return found if average is None else found | {"average": Decimal(average)}


# Before the sensor was corrected; the second day ran first, and saw nothing of the first one.
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
# The first day by the job that corrects; the second is stale by now.
MIDDLE = Version(
    version=4,
    days=(ONE,),
    averages=[*AVERAGES[:2], *EARLY.averages],
    parts=[*PARTS[:2], *EARLY.parts],
)
LAST = Version(version=6, days=(TWO,), averages=AVERAGES, parts=PARTS)


@dataclass(frozen=True)
class Scenery:
    """What the judge looks at."""

    versions: Sequence[Version] = (EARLY, MIDDLE, LAST)
    told: Sequence[Told] = (
        Told(version=3, stale=frozenset()),
        Told(version=5, stale=frozenset({TWO})),
        Told(version=7, stale=frozenset()),
    )
    files: Sequence[Row] = tuple(AVERAGES)

    def with_last(self, **changed: Any) -> Scenery:
        """The same with another last version."""
        return replace(self, versions=(EARLY, MIDDLE, replace(LAST, **changed)))


def judged(path: Path, seen: Scenery) -> Ruling:
    """What the judge says of it."""
    folder = path / "averages"
    folder.mkdir()
    for day in (ONE, TWO):
        rows = [one for one in seen.files if one["as_of"] == day + timedelta(days=1)]
        lines = [json.dumps(one, default=str) + "\n" for one in rows]
        (folder / f"{part(day)}.jsonl").write_text("".join(lines))
    return judge(
        seen.versions,
        folder,
        write_sent(path / "sent", *SENT),
        days=[ONE, TWO],
        calibrated=True,
        told=seen.told,
    )


def test_what_one_pass_gives_passes(tmp_path: Path) -> None:
    found = judged(tmp_path, Scenery())
    assert found.passed, list(found.lines())
    assert found.rows == len(AVERAGES)


Damage = Callable[[Scenery], Scenery]


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
        # A state that saw the aborted reading, or another day's.
        (
            lambda s: s.with_last(parts=[PARTS[0], row("s1", ONE, 2, "97.99"), PARTS[2]]),
            {"the state", "same swap"},
        ),
        (
            lambda s: s.with_last(parts=[*PARTS[:2], row("s3", TWO, 3, "60.00")]),
            {"the state", "same swap"},
        ),
        # Averages that were committed before the state that they were made of, or after it.
        (
            lambda s: replace(s, versions=(EARLY, replace(MIDDLE, parts=EARLY.parts), LAST)),
            {"same swap"},
        ),
        (
            lambda s: replace(s, versions=(replace(EARLY, averages=[]), MIDDLE, LAST)),
            {"same swap", "stale"},
        ),
        (lambda s: replace(s, told=[s.told[0], s.told[2]]), {"stale"}),
        (lambda s: replace(s, told=[replace(s.told[1], version=7)]), {"stale"}),
        (lambda s: replace(s, told=[replace(s.told[0], version=5), s.told[2]]), {"stale"}),
        (lambda s: replace(s, told=s.told[:2]), {"stale"}),
        (lambda s: replace(s, files=AVERAGES[1:]), {"the folder"}),
        (
            lambda s: replace(s, files=[*AVERAGES[:2], *EARLY.averages, AVERAGES[3]]),
            {"the folder"},
        ),
    ],
)
def test_damage_is_named(tmp_path: Path, damage: Damage, checks: set[str]) -> None:
    found = judged(tmp_path, damage(Scenery()))
    assert not found.passed
    assert checks <= {one.check for one in found.findings if not one.holds}


def test_a_file_too_many_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "averages"
    assert judged(tmp_path, Scenery()).passed
    (folder / f"{part(TWO + timedelta(days=1))}.jsonl").touch()
    sent = write_sent(tmp_path / "sent", *SENT)
    seen = Scenery()
    found = judge(seen.versions, folder, sent, days=[ONE, TWO], calibrated=True, told=seen.told)
    assert {one.check for one in found.findings if not one.holds} == {"the folder"}
