"""The use case `stage together`: one attempt also stages small plans of other runs of its DAG, which use its reports.

Each run still commits its own plans. All of this only saves Spark starts: if a claim or a report is lost, late or
damaged, the plan's own run stages the plan itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from tallystick.errors import RetryLater, TallystickError
from tallystick.format import keys
from tallystick.format.claim import Claim
from tallystick.format.interval import Request
from tallystick.format.page import Granted
from tallystick.format.plan import Plan
from tallystick.format.report import Report
from tallystick.lake import Lake, Snapshot
from tallystick.protocol import staging
from tallystick.store.create_once import create_once

CLAIM_TIME = timedelta(minutes=15)
"""After this time a run no longer waits for the report of another run's attempt."""
AROUND = 64
"""How many lengths of the own interval before and after it the ledger is searched for other plans."""
AROUND_MAX = timedelta(days=366)
POLL_S = 2.0
STATE_EVERY = 5
_UNKNOWN_S = 10.0


def claim(lake: Lake, plan: Plan, request: Request, attempt: str) -> Claim | None:
    """Claim the plan for an attempt of the run `request`. Return the plan's claim, of this attempt or of another.

    Safe to repeat: create-if-absent has one winner per plan, and a claim is no right: it decides nothing at the commit.
    Returns None if the claim that is there cannot be read. Raises the errors of the store.
    """
    own = Claim(
        plan=plan.key, request=request, attempt=attempt, until=lake.runtime.now() + CLAIM_TIME
    )
    body = own.encode()
    if create_once(lake.store, own.key, body, runtime=lake.runtime, unknown_s=_UNKNOWN_S):
        return own
    return read_claim(lake, plan)


def read_claim(lake: Lake, plan: Plan) -> Claim | None:
    """Return the plan's claim; None if there is none, or if it is not readable as a claim of this plan."""
    key = keys.claim(plan.key)
    found = lake.store.get(key)
    if found is None:
        return None
    try:
        known = Claim.decode(found.body, where=lake.where(key))
    except TallystickError:
        return None  # the plan's own run stages it itself
    return known if known.plan == plan.key else None


def claimed_report(lake: Lake, plan: Plan, known: Claim) -> Report | None:
    """Return the report that the claim announced; None if it is not there, or is not of exactly this plan.

    It is found by its key, never by a listing. The commit checks it and its files as every report (I3, I7).
    """
    try:
        report = lake.report(known.report)
    except RetryLater:
        raise
    except TallystickError:
        return None  # it is damaged: the plan's own run stages it itself
    if report is None or not staging.is_claimed_report(plan, known, report):
        return None
    return report


@dataclass(frozen=True, kw_only=True)
class StageTogether:
    """What one attempt of the run `request` shares with the attempts of other runs.

    `fresh`: False if the attempt is a retry, which stages its plans itself. `is_running`: returns False if the stage task
    of a request's run has ended. `note`: gets one line for each step.
    """

    lake: Lake
    request: Request
    attempt: str
    fresh: bool
    is_running: Callable[[Request], bool]
    note: Callable[[str], None]

    def reports(self, plans: Sequence[Plan]) -> dict[keys.PlanKey, keys.ReportKey]:
        """Claim the run's own plans, and return the reports of those that another run's attempt stages, by plan.

        Waits for these attempts. A plan without a report is left to this attempt. If the store does not answer, the
        attempt stages its plans itself. Safe to repeat: see `claim`.
        """
        found: dict[keys.PlanKey, keys.ReportKey] = {}
        try:
            for plan in filter(staging.is_small, plans):
                known = claim(self.lake, plan, self.request, self.attempt)
                if known is None or not staging.is_of_another_run(known, plan):
                    continue
                if not self.fresh or not staging.may_use(plan, self.request):
                    self.note(
                        f"{plan.interval} was claimed by {known.request}: after a retry or a clear it is staged anew"
                    )
                elif (report := self._wait(plan, known)) is not None:
                    found[plan.key] = report
        except RetryLater as error:
            self.note(f"not waiting for another run: {error}")
        return found

    def _wait(self, plan: Plan, known: Claim) -> keys.ReportKey | None:
        """Wait until the attempt has written the report, or has ended without one, or its claim is over."""
        self.note(f"{plan.interval} is staged by the stage task of {known.request}")
        polls = 0
        while True:
            # Check the task before the report: a task that has ended writes no report afterwards.
            over = self.lake.runtime.now() >= known.until or (
                polls % STATE_EVERY == 0 and not self.is_running(known.request)
            )
            report = claimed_report(self.lake, plan, known)
            if report is not None:
                self.note(f"uses its report {report.key}")
                return report.key
            if over:
                self.note("it has no report: this task stages the interval itself")
                return None
            self.lake.runtime.sleep(POLL_S)
            polls += 1


@dataclass(kw_only=True)
class OtherPlans:
    """The plans of other runs that one attempt stages as well: at most `plans_max` of them, of limited size together.

    `own`: the plans of the attempt's own run. If one of them is large, the attempt stages none of another run.
    """

    lake: Lake
    own: Sequence[Plan]
    attempt: str
    plans_max: int
    claimed: list[Plan] = field(default_factory=list)
    _seen: set[keys.PlanKey] = field(default_factory=set)

    def count(self, plans: Iterable[Plan]) -> None:
        """Count plans that another process of this attempt has claimed."""
        for plan in plans:
            self._seen.add(plan.key)
            self.claimed.append(plan)

    def claim_more(self) -> Iterator[Plan]:
        """Claim granted plans near the own ones that no attempt has claimed, and yield each after its claim.

        Safe to repeat: a plan is looked at once, and see `claim`. Raises the errors of the lake; plans that were yielded
        before stay claimed.
        """
        if not self.own or not all(map(staging.is_small, self.own)):
            return
        own = self.own[0]
        for key in self._near(own) if len(self.claimed) < self.plans_max else ():
            if len(self.claimed) >= self.plans_max:
                return
            self._seen.add(key)
            plan = self.lake.plan(key)
            if plan is None or not staging.can_join(own, plan) or not self._has_room(plan):
                continue
            known = claim(self.lake, plan, own.request, self.attempt)
            if known is not None and known.attempt == self.attempt:
                self.claimed.append(plan)
                yield plan

    def _has_room(self, plan: Plan) -> bool:
        return sum(map(staging.offsets, [*self.claimed, plan])) <= staging.OFFSETS_MAX

    def _near(self, own: Plan) -> list[keys.PlanKey]:
        """Return granted plans of other runs of the DAG that were not looked at yet, the next in time first."""
        interval = own.interval
        reach = min(interval.end - interval.start, AROUND_MAX / AROUND) * AROUND

        def granted(snapshot: Snapshot) -> list[Granted]:
            ledger = snapshot.ledger(interval.start - reach, interval.end + reach)
            return [e.granted for e in ledger.entries if e.granted is not None]

        found = [
            (abs(keys.plan_interval(one.plan)[0] - interval.start), one.plan)
            for one in self.lake.read(granted)
            if one.request.dag == own.request.dag
            and not one.request.same_run(own.request)
            and one.plan not in self._seen
        ]
        return [plan for _, plan in sorted(found)]
