"""Reads the open grants of a ledger, the grants that ended without a commit, and the replacements with fewer records.

All values come from one root and the plans and records that it names. Nothing is written.
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

# A hint only: the ledger does not record if a run is still alive, and a stage may take more than a day.
STUCK_AFTER = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantStatus:
    """The open grant of an interval. `replaces`: True if the interval has committed rows, which stay until the commit.

    `planned_at` and `age` are None if the plan cannot be read. `release`: the command that cancels the grant.
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
        """True if the grant is at least `STUCK_AFTER` old, or its plan cannot be read: its run may never commit."""
        return self.age is None or self.age >= STUCK_AFTER


def grant_status(lake: Lake, entry: Entry, *, now: datetime) -> GrantStatus:
    """Return the status of an entry's grant. It reads the plan for the time of planning."""
    assert entry.granted is not None
    planned_at = None
    # A plan that cannot be read is reported as such, and must not hide the rest of the ledger.
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
    """Return the command that cancels the grant of exactly `interval`."""
    dates = ("--from", interval.start.isoformat(), "--to", interval.end.isoformat())
    return ("tally", "release", uri, *dates)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedGrant:
    """The grants of an interval that ended without a commit since its last commit.

    They were taken over, released, refused, or requested anew. `requests`: the requests that had them, oldest first, as
    far as the entry still names them. The ledger has no trace of a grant that left a gap.
    """

    interval: Interval
    count: int
    requests: tuple[Request, ...]


def cancelled(entry: Entry) -> EndedGrant | None:
    """Return the ended grants of an entry; None if there are none.

    Each grant has increased the generation by one. Those that are neither committed nor granted now have ended.
    """
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
    """A replacement with fewer records and dead letters than the interval had before; an operator accepted that."""

    interval: Interval
    before: int
    now: int


def may_have_fewer(entry: Entry) -> bool:
    """Return True if an entry's commit is a replacement that did not read every offset."""
    committed = entry.committed
    if committed is None or committed.generation == 1:
        return False
    return bool(committed.totals.absent or committed.totals.lost)


def fewer(lake: Lake, entry: Entry) -> Fewer | None:
    """Compare an entry's commit with those that it replaced; return None if it does not have fewer records.

    It reads commit records only if offsets are absent or lost.
    """
    if not may_have_fewer(entry):
        return None
    assert entry.committed is not None
    totals = entry.committed.totals
    earlier = lake.earlier_commits(entry)[1:]
    before = max((c.totals.records + c.totals.dead_letters for c in earlier), default=0)
    now = totals.records + totals.dead_letters
    return Fewer(interval=entry.interval, before=before, now=now) if before > now else None
