"""The list of all contenders of the backfill, and the choice by the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench.whole_job.backfill.plain_spark import BackfillPlainSpark
from bench.whole_job.backfill.tallystick import DEFAULT_TOGETHER, BackfillTallystick
from bench.whole_job.contender import Contender

CONTENDERS: Mapping[str, Callable[[], Contender]] = {
    "tallystick": lambda: BackfillTallystick("best"),
    "tallystick-by-12": lambda: BackfillTallystick("best", together=DEFAULT_TOGETHER),
    "tallystick-tasks": lambda: BackfillTallystick("best", processes="each"),
    "tallystick-each": lambda: BackfillTallystick("best", together=1, processes="each"),
    "tallystick-without-spark": lambda: BackfillTallystick("without-spark"),
    "tallystick-tasks-without-spark": lambda: BackfillTallystick("without-spark", processes="each"),
    "tallystick-each-without-spark": lambda: BackfillTallystick(
        "without-spark", together=1, processes="each"
    ),
    "spark-loop": lambda: BackfillPlainSpark("loop"),
    "spark-submits": lambda: BackfillPlainSpark("submits"),
}


def contenders_of(names: str | None) -> list[Contender]:
    """Return the contenders of a comma-separated list; without one, all. Raises SystemExit if a name is unknown."""
    chosen = list(CONTENDERS) if names is None else names.split(",")
    for name in chosen:
        if name not in CONTENDERS:
            raise SystemExit(
                f"no contender is called {name!r}: use some of {', '.join(CONTENDERS)}"
            )
    return [CONTENDERS[name]() for name in dict.fromkeys(chosen)]
