"""The arguments of a job: the plans and the attempt. They never contain a secret."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from tallystick.errors import InvalidRequest
from tallystick.format import keys

_PLAN = re.compile(r"(.+)/(plans/[^@]+)@([0-9a-f]{64})")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRef:
    """A reference to one plan: the lake URI, the plan's key, and the SHA-256 of its bytes."""

    lake_uri: str
    key: keys.PlanKey
    sha256: str

    def __str__(self) -> str:
        return f"{self.lake_uri}/{self.key}@{self.sha256}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The arguments of a job file. `others`: plans of other runs, which this attempt has claimed.

    `others_max`: how many plans of other runs the attempt stages at most, including `others`. `to_lake`: True if the
    outcome is written to the lake, because the task that started the job runs on another machine. `without_spark`: True
    if the job stages in its own process.
    """

    plans: tuple[PlanRef, ...]
    attempt: str
    others: tuple[PlanRef, ...] = ()
    others_max: int = 0
    to_lake: bool = False
    without_spark: bool = False


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _invalid(message)


def parse_arguments(argv: Sequence[str]) -> Arguments:
    """Parse the arguments; raises InvalidRequest.

    They are `--plan <lake URI>/plans/...json@<sha256>` (once or more) and `--attempt <id>`, and optionally `--other` with
    the same value as `--plan`, `--others-max <number>`, `--outcome-to-lake`, and `--without-spark`.
    """
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--plan", action="append", required=True, dest="plans")
    parser.add_argument("--attempt", required=True)
    parser.add_argument("--other", action="append", default=[], dest="others")
    parser.add_argument("--others-max", type=int, default=0)
    parser.add_argument("--outcome-to-lake", action="store_true", dest="to_lake")
    parser.add_argument("--without-spark", action="store_true", dest="without_spark")
    found = parser.parse_args(argv)
    plans = tuple(parse_plan_ref(text) for text in found.plans)
    others = tuple(parse_plan_ref(text) for text in found.others)
    named = (*plans, *others)
    if len({p.key for p in named}) != len(named) or len({p.lake_uri for p in named}) != 1:
        raise _invalid("expected different plans of one lake")
    try:
        return Arguments(
            plans=plans,
            attempt=keys.check_attempt(found.attempt),
            others=others,
            others_max=found.others_max,
            to_lake=found.to_lake,
            without_spark=found.without_spark,
        )
    except ValueError as error:
        raise _invalid(str(error)) from error


def parse_plan_ref(text: str) -> PlanRef:
    """Parse `<lake URI>/plans/<interval>/<uuid>.json@<sha256>`; raises InvalidRequest."""
    found = _PLAN.fullmatch(text)
    if not found:
        raise _invalid(f"expected a plan, found {text!r}")
    try:
        return PlanRef(lake_uri=found[1], key=keys.check_plan(found[2]), sha256=found[3])
    except ValueError as error:
        raise _invalid(str(error)) from error


def _invalid(message: str) -> InvalidRequest:
    return InvalidRequest(
        f"arguments of the job: {message}.",
        hint="start it as `spark-submit job.py --plan <lake URI>/<plan key>@<sha256> --attempt <id>`.",
    )
