"""The use case `release`: take the grant of a run that will never commit away, so that others may have its interval."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tallystick.errors import InvalidRequest
from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.format.page import Entry
from tallystick.lake import Change, Lake, Settled, View


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The grant that was taken away; it is gone in root `version`. `committed`: rows stay there; else there is a hole."""

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
    done: list[Released] = []

    def step(view: View) -> Change[Released] | Settled[Released]:
        ledger = view.ledger(interval.start, interval.end)
        entry = ledger.entry(interval)
        if entry is None or entry.granted is None:
            # C9: our own swap may have landed unheard; but where the run was quicker, nothing is released.
            if done and not _was_committed(lake, entry, done[0].plan):
                return Settled(value=replace(done[0], version=view.root.version))
            raise _not_granted(interval, ledger.overlapping(interval))
        done[:] = [
            Released(
                interval=interval,
                request=entry.granted.request,
                plan=entry.granted.plan,
                generation=entry.granted.generation,
                committed=entry.committed is not None,
                version=view.root.version + 1,
            )
        ]
        ledger.cancel(interval)
        return Change(
            tables=view.root.tables, topics=view.root.topics, ledger=ledger, value=done[0]
        )

    return lake.swap(step)


def _was_committed(lake: Lake, entry: Entry | None, plan_key: keys.PlanKey) -> bool:
    return entry is not None and any(c.plan == plan_key for c in lake.earlier_commits(entry))


def _not_granted(interval: Interval, near: tuple[Entry, ...]) -> InvalidRequest:
    granted = [e for e in near if e.granted is not None]
    if not granted:
        return InvalidRequest(
            f"{interval} is not granted to anybody.",
            next_step="nothing is to be released; `tally status` shows all grants.",
        )
    one = granted[0].interval
    return InvalidRequest(
        f"{interval} is no granted interval; {one} is, which shares time with it.",
        next_step=f"name that one whole: --from {keys.instant(one.start)} --to {keys.instant(one.end)}.",
    )
