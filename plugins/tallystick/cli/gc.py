"""`tally gc`: parses durations, runs gc with progress bars on a terminal, and renders the result."""

from __future__ import annotations

import re
from datetime import timedelta

from tallystick.cli.errors import bars
from tallystick.cli.text import INDENT, grid, many, paragraph, shown, size, span, spell
from tallystick.errors import InvalidRequest
from tallystick.format.keys import Kind
from tallystick.lake import Lake
from tallystick.operations.gc import CancelledGrant, Collection, Heap, collect

_DURATION = re.compile(r"([0-9]{1,5})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_NAMES: dict[Kind, str] = {
    "data file": "data files",
    "shared file": "shared files",
    "deletes": "position delete files",
    "compaction": "compactions",
    "metadata": "table metadata",
    "page": "ledger pages",
    "plan": "plans",
    "claim": "claims",
    "report": "reports",
    "record": "commit records",
    "scratch": "scratch",
    "call": "notes of calls",
    "probe": "probe objects",
    "foreign": "not tallystick's",
    "root": "root.json",
}


def duration(text: str, option: str) -> timedelta:
    """Parse a duration such as `90s`, `30m`, `24h` or `7d`; raises InvalidRequest that names the option."""
    found = _DURATION.fullmatch(text.strip())
    if not found:
        raise InvalidRequest(
            f"{option}: expected a duration, found {text!r}.",
            hint="use a whole number and s, m, h or d, e.g. 24h or 7d.",
        )
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def collected(
    lake: Lake, *, delete: bool, reader_grace: timedelta | None, cancel_after: timedelta | None
) -> Collection:
    """Run gc, with bars on a terminal. Safe to repeat: `tallystick.operations.gc.collect` is."""
    from tallystick.tables.reach import IcebergReach  # PyIceberg is slow to import

    with bars() as watch:
        return collect(
            lake,
            IcebergReach(lake.store),
            delete=delete,
            reader_grace=reader_grace,
            cancel_after=cancel_after,
            watch=watch,
        )


def text(answer: Collection) -> str:
    """Return the answer as text: garbage and kept objects by kind, then cancelled grants and remarks."""
    how = "objects were deleted" if answer.deleted else "dry run: nothing was changed"
    parts = [
        paragraph(f"{answer.pipeline} at {answer.uri}, version {answer.version}; {how}."),
        _heaps(answer),
    ]
    verb = "deleted" if answer.deleted else "would be deleted with --delete"
    total = answer.total
    parts.append(
        paragraph(f"{many(total.objects, 'object')} with {size(total.size_bytes)} {verb}.")
        if total.objects
        else "There is nothing to collect."
    )
    if not answer.deleted and total.objects:
        parts.append(
            paragraph(
                "These may include objects of runs in progress: --delete excludes them, by its swap."
            )
        )
    parts += [_cancelled(one, done=answer.deleted) for one in answer.cancelled]
    if answer.oldest is not None:
        remain = "remain" if answer.deleted else "would remain"
        parts.append(f"Versions {answer.oldest} to {answer.version} {remain} readable.")
    if answer.foreign:
        some = ", ".join(map(shown, answer.foreign))
        parts.append(
            paragraph(f"Not written by tallystick, and not deleted; the first of them: {some}.")
        )
    parts += [paragraph(shown(remark)) for remark in answer.remarks]
    return "\n\n".join(parts)


def _heaps(answer: Collection) -> str:
    none = Heap()
    rows = []
    for kind, name in _NAMES.items():
        garbage, kept = answer.garbage.get(kind, none), answer.kept.get(kind, none)
        if garbage.objects or kept.objects:
            rows.append((name, *_cells(garbage), *_cells(kept)))
    headings = ("what", "garbage", "bytes", "kept", "bytes kept")
    return grid(headings, rows, right=headings[1:])


def _cells(heap: Heap) -> tuple[str, str]:
    return (f"{heap.objects:,}", size(heap.size_bytes)) if heap.objects else ("", "")


def _cancelled(one: CancelledGrant, *, done: bool) -> str:
    was = "was" if done else "would be"
    left = "its committed rows remain" if one.committed else "a gap remains"
    lines = paragraph(
        f"The grant of {span(one.interval)} to {one.request}, planned {spell(one.planned_at)}, {was} cancelled; {left}. "
        "Clear that run's plan task to plan it again."
    )
    return lines + "\n" + paragraph(one.plan, indent=INDENT)
