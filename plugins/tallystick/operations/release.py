"""The use case `release`: take the grant of a run that will never commit away, so that others may have its interval."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tallystick.errors import InvalidRequest
from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.format.page import Entry
from tallystick.lake import Lake, NoUpdate, Snapshot, Update


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The grant that was taken away; it is gone in root `version`. `committed`: rows stay there; else there is a gap."""

    interval: Interval
    request: Request
    plan: keys.PlanKey
    generation: int
    committed: bool
    version: int


def release(lake: Lake, interval: Interval) -> Released:
    """Cancel the grant of exactly `interval`: its plan can never be committed, what is committed stays.

    Safe to repeat: a repeat finds no grant, and says so; one whose reply was lost finds its own work done (C9). Nothing
    is deleted. Raises InvalidRequest where no such interval is granted, and what the lake raises.
    """
    lake.prove()
    return lake.swap(_ReleaseAttempt(lake, interval).step)


class _ReleaseAttempt:
    """One call of `release`: what its tries have in common."""

    def __init__(self, lake: Lake, interval: Interval) -> None:
        self._lake, self._interval = lake, interval
        self._done: Released | None = None

    def step(self, snapshot: Snapshot) -> Update[Released] | NoUpdate[Released]:
        """Decide on the root as it is now. Safe to repeat: it finds this call's own earlier success there (C9)."""
        interval, done = self._interval, self._done
        ledger = snapshot.ledger(interval.start, interval.end)
        entry = ledger.entry(interval)
        if entry is None or entry.granted is None:
            # C9: our own swap may have landed unheard; but if the run was quicker, nothing is released.
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
            f"{interval} is not granted to anybody.",
            hint="nothing is to be released; `tally status` shows all grants.",
        )
    one = granted[0].interval
    return InvalidRequest(
        f"{interval} is no granted interval; {one} is, which shares time with it.",
        hint=f"name that one whole: --from {keys.instant(one.start)} --to {keys.instant(one.end)}.",
    )
