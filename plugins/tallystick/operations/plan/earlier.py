"""The plans whose schemas a new plan is compared with."""

from __future__ import annotations

from collections.abc import Callable

from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.format.page import Committed
from tallystick.protocol.ledger import Ledger


def plans_with_schemas(
    part: Ledger,
    whole: Callable[[], Ledger],
    interval: Interval,
    *,
    replaced: Committed | None,
) -> set[keys.PlanKey]:
    """Return the plan that is replaced, and those of the nearest committed intervals with records, on both sides.

    The plan of an empty interval has no schemas. `part` is the ledger around the interval; the whole one is read only if
    that part has no interval with records.
    """
    nearest = _nearest_with_records(part, interval) or _nearest_with_records(whole(), interval)
    return {committed.plan for committed in (replaced, *nearest) if committed is not None}


def _nearest_with_records(ledger: Ledger, interval: Interval) -> list[Committed]:
    read = [
        (e.interval, e.committed)
        for e in ledger.entries
        if e.committed and e.committed.totals.records + e.committed.totals.dead_letters
    ]
    before = [committed for at, committed in read if at.end <= interval.start]
    after = [committed for at, committed in read if at.start >= interval.end]
    return [*before[-1:], *after[:1]]
