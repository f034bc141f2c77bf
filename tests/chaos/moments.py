"""The moment of a fault: at a drawn request of the run, which is held meanwhile, or a drawn delay after it."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from chaos.tap import Point, Sender

DELAY_S_MAX = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A point, True if its request is held during the fault, and the delay after it if not."""

    point: Point
    hold: bool
    delay_s: float

    def __str__(self) -> str:
        return f"{self.point}, held" if self.hold else f"{self.point}, {self.delay_s:.2f} s later"


def draw(rng: random.Random, points: tuple[Point, ...], *, hold: bool | None = None) -> Moment:
    """Draw one of the points; its request is held if `hold`, or if a coin toss decides so (None)."""
    point = rng.choice(points)
    drawn, delay_s = rng.random() < 0.5, rng.random() * DELAY_S_MAX
    if hold is None:
        hold = drawn
    return Moment(point=point, hold=hold, delay_s=0.0 if hold else delay_s)


def after_the_first_root(points: tuple[Point, ...]) -> tuple[Point, ...]:
    """Return the points as they are in a lake that has a root: its creation does not occur, and is not counted."""
    found = []
    for point in points:
        of_root = (point.method, point.path) == ("PUT", _ROOT)
        if not of_root or point.nth > 1:
            found.append(replace(point, nth=point.nth - 1) if of_root else point)
    return tuple(found)


def _both(
    name: str, method: str, path: str, *nths: int, sender: Sender = "run"
) -> tuple[Point, ...]:
    return tuple(
        Point(name=name, method=method, path=path, nth=nth, when=when, sender=sender)
        for nth in nths or (1,)
        for when in ("before", "after")
    )


_ROOT = r"root\.json$"
# The plan: its first read of the root, the first root (create), the plan's page and object, the granting swap.
PLAN = (
    Point(name="first read of the root", method="GET", path=r"root\.json$"),
    *_both("PUT of the first root", "PUT", _ROOT, 1),
    *_both("PUT of a plan", "PUT", r"plans/", 1),
    *_both("PUT of a ledger page", "PUT", r"ledger/", 1),
    *_both("PUT of the granting root", "PUT", _ROOT, 2),
)
# The stage: spark-submit starts after the task has read the plan; the driver reads the plan again.
SUBMIT = (
    Point(name="read of a plan", method="GET", path=r"plans/", nth=1, when="after"),
    Point(name="read of a plan", method="GET", path=r"plans/", nth=2, when="after"),
)
UPLOAD = _both("upload of a file", "PUT", r"tables/[^/]+/data/", 1, 2, 3)
REPORT = _both("PUT of a report", "PUT", r"attempts/", 1)
STAGE = (*SUBMIT, *UPLOAD, *REPORT)
# The commit: Iceberg's metadata, the commit record, the swap (the third PUT of a root or a later one).
COMMIT = (
    *_both("PUT of Iceberg's metadata", "PUT", r"tables/[^/]+/metadata/", 1, 3),
    *_both("PUT of a commit record", "PUT", r"commits/", 1),
    *_both("PUT of a committing root", "PUT", _ROOT, 3),
)
ANY = (*PLAN, *STAGE, *COMMIT)
DRIVER = (*UPLOAD, *REPORT)
# One process of `tally compact`: its first read of the root, the grant, the shared files, the compactions' objects, and
# what it publishes: Iceberg's metadata, a record, the swap.
COMPACT = (
    Point(name="first read of the root", method="GET", path=_ROOT, sender="compact"),
    *_both("PUT of the root that grants compactions", "PUT", _ROOT, 1, sender="compact"),
    *_both("upload of a shared file", "PUT", r"tables/[^/]+/shared/", 1, 2, sender="compact"),
    *_both("PUT of a compaction", "PUT", r"compactions/", 1, 2, sender="compact"),
    *_both(
        "PUT of a compaction's Iceberg metadata",
        "PUT",
        r"tables/[^/]+/metadata/",
        1,
        3,
        sender="compact",
    ),
    *_both("PUT of a compaction's record", "PUT", r"commits/", 1, sender="compact"),
    *_both("PUT of the root that publishes compactions", "PUT", _ROOT, 2, sender="compact"),
)
