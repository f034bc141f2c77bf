"""Stages small plans of other runs after the plans of the own run, in the same driver (`operations.stage_together`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from tallystick.errors import TallystickError
from tallystick.format.plan import Plan
from tallystick.lake import Lake
from tallystick.operations.stage_together import OtherPlans
from tallystick.spark.arguments import Arguments, PlanRef

log = logging.getLogger("tallystick.spark")
OTHERS_S = 120.0
"""After this time no further plan of another run is begun: the own run waits for the end of the driver."""


def stage_others(lake: Lake, arguments: Arguments, stage: Callable[[PlanRef], bool]) -> int:
    """Stage the plans of other runs that this attempt has claimed, and then further plans that it claims now.

    Never raises: an error of another run's plan is only logged, because that run finds it itself when it stages the
    plan. After an error no further plan is begun. Safe to repeat: each plan is claimed once, and staged under the prefix
    of this attempt. Returns the number of plans that were staged.
    """
    deadline = lake.runtime.monotonic_s() + OTHERS_S
    done = 0
    try:
        for ref in _refs(lake, arguments):
            if lake.runtime.monotonic_s() >= deadline:
                log.info("no further plan of another run is begun after %.0f s", OTHERS_S)
                break
            done += stage(ref)
    # The own run has its result: no error of another run's plan may end it.
    except Exception as error:  # noqa: BLE001
        known = (
            str(error) if isinstance(error, TallystickError) else f"{type(error).__name__}: {error}"
        )
        log.warning("not staged for another run, which stages it itself: %s", known[:500])
    if done:
        log.info("staged %d plan(s) of other runs", done)
    return done


def _refs(lake: Lake, arguments: Arguments) -> Iterator[PlanRef]:
    yield from arguments.others
    own, others = (_plans(lake, refs) for refs in (arguments.plans, arguments.others))
    more = OtherPlans(lake=lake, own=own, attempt=arguments.attempt, plans_max=arguments.others_max)
    more.count(others)
    # Runs are planned while this driver starts and stages: search again until no new plan is found.
    while True:
        found = 0
        for plan in more.claim_more():
            found += 1
            yield PlanRef(lake_uri=lake.store.uri, key=plan.key, sha256=plan.sha256)
        if not found:
            return


def _plans(lake: Lake, refs: tuple[PlanRef, ...]) -> list[Plan]:
    plans = (lake.plan(ref.key) for ref in refs)
    return [plan for plan in plans if plan is not None]
