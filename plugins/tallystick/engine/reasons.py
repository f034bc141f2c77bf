"""Counts the reasons of dead letters by kind: the text of a reason contains the value, so few texts are equal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from tallystick.format.codec import StoredValue
from tallystick.format.report import mostly_dead

# A kind names a column, and each column has a few kinds. If there are more than this, the rest are counted together.
KINDS_MAX = 200
SHOWN_MAX = 3
EXAMPLE_CHARS_MAX = 160
_KIND = re.compile(r"\w+(?:: field [^:]*)?")
OTHERS = "others"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason(StoredValue):
    """The count of one kind of reason, and the first reason of that kind."""

    AS_LIST: ClassVar[bool] = True

    count: int
    example: str


def counted(rows: pa.Table, before: Mapping[str, Reason]) -> dict[str, Reason]:
    """Return the counts `before` plus those of a table of dead letters."""
    return joined([before, *({_kind(r): Reason(count=1, example=r)} for r in _texts(rows))])


def joined(parts: Iterable[Mapping[str, Reason]]) -> dict[str, Reason]:
    """Return the sum of several counts, each with its first example."""
    found: dict[str, Reason] = {}
    for part in parts:
        for kind, one in part.items():
            kept = kind if kind in found or len(found) < KINDS_MAX else OTHERS
            before = found.get(kept)
            count = one.count + (before.count if before else 0)
            example = before.example if before else one.example[:EXAMPLE_CHARS_MAX]
            found[kept] = Reason(count=count, example=example)
    return found


def dead_warning(records: int, dead: int, reasons: Mapping[str, Reason]) -> str | None:
    """Return a warning with the most frequent reasons if half of the records or more are dead letters, else None."""
    if not mostly_dead(records, dead):
        return None
    ordered = sorted(reasons.items(), key=lambda item: -item[1].count)
    shown = "; ".join(
        f"{one.count:,} {kind}, e.g. {one.example}" for kind, one in ordered[:SHOWN_MAX]
    )
    more = f"; and {len(ordered) - SHOWN_MAX} more kinds" if len(ordered) > SHOWN_MAX else ""
    return (
        f"{dead:,} of {records + dead:,} records are dead letters ({dead / (records + dead):.0%}): {shown}{more}. "
        "Check that the declaration fits the topic (types, parse, source)."
    )


def _texts(rows: pa.Table) -> list[str]:
    texts: list[str] = rows.column("reason").to_pylist()
    return texts


def _kind(reason: str) -> str:
    found = _KIND.match(reason)
    return found[0] if found else OTHERS
