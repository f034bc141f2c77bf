"""The moment of a fault: at a drawn request of the run, which is held meanwhile, or a drawn delay after it."""

from __future__ import annotations

import random
from dataclasses import dataclass

from chaos.tap import Point

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


def _both(name: str, method: str, path: str, *nths: int) -> tuple[Point, ...]:
    return tuple(
        Point(name=name, method=method, path=path, nth=nth, when=when)
        for nth in nths or (1,)
        for when in ("before", "after")
    )


# The plan: its first read of the root, the first root (create), the plan's page and object, the granting swap.
PLAN = (
    Point(name="first read of the root", method="GET", path=r"root\.json$"),
    *_both("PUT of the first root", "PUT", r"root\.json$", 1),
    *_both("PUT of a plan", "PUT", r"plans/", 1),
    *_both("PUT of a ledger page", "PUT", r"ledger/", 1),
    *_both("PUT of the granting root", "PUT", r"root\.json$", 2),
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
    *_both("PUT of a committing root", "PUT", r"root\.json$", 3),
)
ANY = (*PLAN, *STAGE, *COMMIT)
DRIVER = (*UPLOAD, *REPORT)
