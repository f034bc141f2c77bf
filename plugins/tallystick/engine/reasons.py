"""Counts the reasons of dead letters by kind and field: the text of a reason contains the value, so few are equal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from tallystick.errors import TooManyDeadLetters
from tallystick.format import keys
from tallystick.format.codec import StoredValue
from tallystick.format.page import Totals
from tallystick.format.plan import Plan
from tallystick.format.report import mostly_dead
from tallystick.pipeline.dead_letters import Limit, exceeded

# A kind names a column, and each column has a few kinds. If there are more than this, the rest are counted together.
KINDS_MAX = 200
SHOWN_MAX = 3
EXAMPLE_CHARS_MAX = 160
OTHERS = "others"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonCount(StoredValue):
    """The count of one kind of reason, and the first reason of that kind."""

    AS_LIST: ClassVar[bool] = True

    count: int
    example: str


def counted(rows: pa.Table, before: Mapping[str, ReasonCount]) -> dict[str, ReasonCount]:
    """Return the counts `before` plus those of a table of dead letters."""
    # Through numpy, because to_pylist first makes a scalar of pyarrow of each value.
    kinds, fields = (rows.column(name).to_numpy().tolist() for name in ("kind", "field"))
    places = list(zip(kinds, fields, strict=True))
    counts = Counter(places)
    firsts: dict[tuple[str, str | None], int] = {}
    for position, place in enumerate(places):
        firsts.setdefault(place, position)
    texts = rows.column("reason")
    found = (
        {named(*place): ReasonCount(count=count, example=texts[firsts[place]].as_py())}
        for place, count in counts.items()
    )
    return joined([before, *found])


def named(kind: str, field: str | None) -> str:
    """Return the name of a kind of reasons: `json`, or `type: field n`."""
    return kind if field is None else f"{kind}: field {field}"


def joined(parts: Iterable[Mapping[str, ReasonCount]]) -> dict[str, ReasonCount]:
    """Return the sum of several counts, each with its first example."""
    found: dict[str, ReasonCount] = {}
    for part in parts:
        for kind, one in part.items():
            kept = kind if kind in found or len(found) < KINDS_MAX else OTHERS
            before = found.get(kept)
            count = one.count + (before.count if before else 0)
            example = before.example if before else one.example[:EXAMPLE_CHARS_MAX]
            found[kept] = ReasonCount(count=count, example=example)
    return found


def dead_warning(records: int, dead: int, reasons: Mapping[str, ReasonCount]) -> str | None:
    """Return a warning with the most frequent reasons if there are dead letters, else None."""
    if not dead:
        return None
    check = "Check that the declaration fits the topic (types, parse, source)."
    advice = f" {check}" if mostly_dead(records, dead) else ""
    return f"{counts(records, dead)}: {most_frequent(reasons)}.{advice}"


def limit_error(
    plan: Plan, limit: Limit, totals: Totals, reasons: Mapping[str, ReasonCount]
) -> TooManyDeadLetters | None:
    """Return the error if there are more dead letters than the limit and the plan does not accept that, else None."""
    expected = exceeded(limit, records=totals.records, dead=totals.dead_letters)
    if expected is None or plan.accept_dead_letters:
        return None
    first, last = (keys.instant(at) for at in (plan.interval.start, plan.interval.end))
    replaces = ", mode=replace" if plan.replaces else ""
    return TooManyDeadLetters(
        f"{plan.interval}: expected {expected}, found that {counts(totals.records, totals.dead_letters)}: "
        f"{most_frequent(reasons)}. Nothing was committed.",
        hint="correct the declaration (a column's type, parse, source or required, the topic's decode), deploy it and "
        "clear task `plan`. If these records are to be dead letters, trigger a run with "
        f"from={first}, to={last}{replaces}, take_over=true, accept_dead_letters=true; or declare "
        "Pipeline(max_dead_letters=...) and clear `plan`.",
    )


def counts(records: int, dead: int) -> str:
    """Return the number of dead letters among all records, and their share."""
    total = records + dead
    return f"{dead:,} of {total:,} records are dead letters ({_percent(dead, total)})"


def _percent(part: int, total: int) -> str:
    share = 100 * part / total
    if part == total:
        return "100%"
    # 100% is all, and 0% would be none.
    return f"{min(round(share), 99)}%" if share >= 1 else f"{max(share, 0.01):.2g}%"


def most_frequent(reasons: Mapping[str, ReasonCount]) -> str:
    """Return the most frequent kinds of reasons, each with its count and an example."""
    ordered = sorted(reasons.items(), key=lambda item: -item[1].count)
    shown = "; ".join(
        f"{one.count:,} {kind}, e.g. {one.example}" for kind, one in ordered[:SHOWN_MAX]
    )
    more = f"; and {len(ordered) - SHOWN_MAX} more kinds" if len(ordered) > SHOWN_MAX else ""
    return f"{shown}{more}"
