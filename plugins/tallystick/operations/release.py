"""The use case `release`: cancel the grant of a run that will never commit, so that another run can get the interval."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tallystick.errors import InvalidRequest
from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.format.page import Entry
from tallystick.lake import Lake, NoUpdate, Snapshot, Update


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The grant that was cancelled. Root `version` is without it.

    `committed`: True if the interval has committed rows, which stay; False if it is a gap now.
    """

    interval: Interval
    request: Request
    plan: keys.PlanKey
    generation: int
    committed: bool
    version: int


def release(lake: Lake, interval: Interval) -> Released:
    """Cancel the grant of exactly `interval`, so that its plan can never be committed.

    Committed rows stay, and nothing is deleted. Safe to repeat: a repeated call finds no grant and raises InvalidRequest;
    a call whose reply was lost finds its own cancellation done (C9). Raises InvalidRequest if this exact interval is
    not granted, and the errors of the lake.
    """
    lake.prove()
    return lake.swap(_ReleaseAttempt(lake, interval).step)


class _ReleaseAttempt:
    """The state that all tries of one `release` call share."""

    def __init__(self, lake: Lake, interval: Interval) -> None:
        self._lake, self._interval = lake, interval
        self._done: Released | None = None

    def step(self, snapshot: Snapshot) -> Update[Released] | NoUpdate[Released]:
        """Decide on the current root. Safe to repeat: it finds this call's own earlier success there (C9)."""
        interval, done = self._interval, self._done
        ledger = snapshot.ledger(interval.start, interval.end)
        entry = ledger.entry(interval)
        if entry is None or entry.granted is None:
            # C9: this call's swap may have landed, its reply lost. If the run committed first, nothing is released.
            if done is not None and not _was_committed(self._lake, entry, done.plan):
                return NoUpdate(value=replace(done, version=snapshot.root.version))
            raise _not_granted(interval, ledger.overlapping(interval))
        self._done = Released(
            interval=interval,
            request=entry.granted.request,
            plan=entry.granted.plan,
            generation=entry.granted.generation,
            committed=entry.committed is not None,
            version=snapshot.root.version + 1,
        )
        ledger.cancel(interval)
        return Update(
            tables=snapshot.root.tables,
            topics=snapshot.root.topics,
            ledger=ledger,
            value=self._done,
        )


def _was_committed(lake: Lake, entry: Entry | None, plan_key: keys.PlanKey) -> bool:
    return entry is not None and any(c.plan == plan_key for c in lake.earlier_commits(entry))


def _not_granted(interval: Interval, near: tuple[Entry, ...]) -> InvalidRequest:
    granted = [e for e in near if e.granted is not None]
    if not granted:
        return InvalidRequest(
            f"{interval} is not granted to any run.",
            hint="list all grants with `tally status`; there is nothing to release.",
        )
    one = granted[0].interval
    return InvalidRequest(
        f"no grant for exactly {interval}; the overlapping grant is {one}.",
        hint=f"name the whole grant: --from {keys.instant(one.start)} --to {keys.instant(one.end)}.",
    )
