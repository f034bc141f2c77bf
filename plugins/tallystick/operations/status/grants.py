"""Who holds what, for how long; whose grants ended without a commit; and which replacements hold less than before.

Values for the operator's view, from one root and the plans and records that it names. Nothing is written.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from tallystick.errors import Corrupt
from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.format.page import Entry
from tallystick.lake import Lake

# The ledger cannot know whether a run still lives, and a stage may take more than a day: this only asks the question.
STUCK_AFTER = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantStatus:
    """Who may commit an interval next; `replaces`: rows are committed there, and stand until then.

    `planned_at` and `age` are None where the plan cannot be read. `release`: the command that takes the grant away.
    """

    interval: Interval
    request: Request
    generation: int
    plan: keys.PlanKey
    replaces: bool
    planned_at: datetime | None
    age: timedelta | None
    release: tuple[str, ...]

    @property
    def stuck(self) -> bool:
        """True where the grant is so old, or its plan so damaged, that its run may never commit."""
        return self.age is None or self.age >= STUCK_AFTER


def grant_status(lake: Lake, entry: Entry, *, now: datetime) -> GrantStatus:
    """What is to be known of an entry's grant; reads its plan, for its time."""
    assert entry.granted is not None
    planned_at = None
    # Told as a plan that cannot be read: the rest of the ledger is to be seen all the same.
    with suppress(Corrupt):
        plan = lake.plan(entry.granted.plan)
        planned_at = plan.planned_at if plan else None
    return GrantStatus(
        interval=entry.interval,
        request=entry.granted.request,
        generation=entry.granted.generation,
        plan=entry.granted.plan,
        replaces=entry.committed is not None,
        planned_at=planned_at,
        age=None if planned_at is None else max(now - planned_at, timedelta(0)),
        release=release_command(lake.store.uri, entry.interval),
    )


def release_command(uri: str, interval: Interval) -> tuple[str, ...]:
    """The command that cancels the grant of exactly `interval`."""
    dates = ("--from", interval.start.isoformat(), "--to", interval.end.isoformat())
    return ("tally", "release", uri, *dates)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedGrant:
    """Grants of an interval that ended without a commit since its last one: taken over, released, refused, or wished
    anew.

    `requests`: who had them, oldest first, as far as the entry still names them. Of a grant that left a gap behind the
    ledger knows nothing.
    """

    interval: Interval
    count: int
    requests: tuple[Request, ...]


def cancelled(entry: Entry) -> EndedGrant | None:
    """What an entry's generations tell: each grant counts, and those that hold no slot have ended."""
    committed, granted = entry.committed, entry.granted
    count = entry.generation - (committed.generation if committed else 0) - (granted is not None)
    if count <= 0:
        return None
    since = list(entry.served)
    if committed is not None and committed.request in since:
        del since[: since.index(committed.request) + 1]
    if granted is not None and granted.request in since:
        since.remove(granted.request)
    return EndedGrant(interval=entry.interval, count=count, requests=tuple(since))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fewer:
    """A replacement that holds fewer records and dead letters than the interval once did: an operator accepted that."""

    interval: Interval
    before: int
    now: int


def fewer(lake: Lake, entry: Entry) -> Fewer | None:
    """Compare an entry's commit with those that it replaced; reads records only where offsets are absent or lost."""
    committed = entry.committed
    if committed is None or committed.generation == 1:
        return None
    totals = committed.totals
    if not (totals.absent or totals.lost):
        return None
    earlier = lake.earlier_commits(entry)[1:]
    before = max((c.totals.records + c.totals.dead_letters for c in earlier), default=0)
    now = totals.records + totals.dead_letters
    return Fewer(interval=entry.interval, before=before, now=now) if before > now else None
