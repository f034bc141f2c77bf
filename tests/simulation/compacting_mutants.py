"""Dropped guards of compaction: each switches off one rule, and the explorer must detect it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from simulation import explorer
from simulation.environment import at
from tallystick.format import keys
from tallystick.format.compaction import CompactionGrant
from tallystick.operations.commit import attempt as commit_module
from tallystick.operations.commit import shared_rows
from tallystick.operations.compact import publish as publish_module
from tallystick.operations.gc import marking
from tallystick.protocol import compacting, retention
from tallystick.tables import row_order

Mutant = Callable[[], AbstractContextManager[Any]]


@contextmanager
def _with(
    *patches: AbstractContextManager[Any],
    collections: bool = False,
    compactions: tuple[int, ...] = (1, 3),
) -> Iterator[None]:
    """Patch without tallystick's own check before each swap, in schedules with more compactions."""
    with ExitStack() as stack:
        stack.enter_context(patch("tallystick.lake.lake.check_swap", lambda *_: None))
        stack.enter_context(patch.object(explorer.Schedule, "compactions_drawn", compactions))
        if collections:
            stack.enter_context(patch.object(explorer.Schedule, "collections_drawn", (3, 5)))
        for one in patches:
            stack.enter_context(one)
        yield


def replacement_ignores_compactions() -> AbstractContextManager[Any]:
    """Drop the reported files of a replaced commit, also those that were moved."""

    def as_reported(lake: Any, snapshot: Any, before: Any, after: Any, files: Any) -> Any:
        return {
            name: shared_rows.RemovedRows(drop=found, delete={}) for name, found in files.items()
        }

    return _with(patch.object(commit_module, "removed_rows", as_reported))


def replacement_keeps_moved_rows() -> AbstractContextManager[Any]:
    """Drop only the files of a replaced commit that are in place."""
    real = compacting.shared_change

    def nothing(compaction: Any, before: Any, after: Any) -> Any:
        return replace(real(compaction, before, after), drop=(), deleted={})

    return _with(patch.object(shared_rows, "shared_change", nothing))


def shared_file_dropped_with_its_first_run() -> AbstractContextManager[Any]:
    """Drop a shared file as soon as one of its runs is replaced."""
    real = compacting.shared_change

    def drop(compaction: Any, before: Any, after: Any) -> Any:
        found = real(compaction, before, after)
        return replace(found, drop=(*found.drop, *found.deleted), deleted={})

    return _with(patch.object(shared_rows, "shared_change", drop))


def deletes_replace_others() -> AbstractContextManager[Any]:
    """Delete only the rows of this replacement, in place of those that were deleted before."""
    real = compacting.shared_change

    def only_new(compaction: Any, before: Any, after: Any) -> Any:
        found = real(compaction, before, after)
        had = {c.shared.file.key: set(c.deleted) for c in compacting.content(compaction, before)}
        deleted = {
            key: tuple(r for r in ranges if r not in had[key]) or ranges
            for key, ranges in found.deleted.items()
        }
        return replace(found, deleted=deleted)

    return _with(patch.object(shared_rows, "shared_change", only_new))


def moves_replaced_rows() -> AbstractContextManager[Any]:
    """Publish the rows of an interval that was replaced while they were rewritten."""

    def any_plan(entry: Any, run: Any, table: str) -> bool:
        return (
            entry is not None
            and entry.committed is not None
            and entry.committed.compactions.get(table) == run.source
        )

    return _with(patch.object(compacting, "_can_move", any_plan))


def forgets_other_compactions() -> AbstractContextManager[Any]:
    """Publish rows that another compaction has moved since they were read."""

    def any_place(entry: Any, run: Any, table: str) -> bool:
        return (
            entry is not None and entry.committed is not None and entry.committed.plan == run.plan
        )

    return _with(patch.object(compacting, "_can_move", any_place))


def published_is_not_recognised() -> AbstractContextManager[Any]:
    """Forget after a lost reply that the compaction was published."""
    forgotten = patch.object(
        publish_module.PublishAttempt, "_published_before", lambda *_: frozenset()
    )
    return _with(forgotten, compactions=(6,))


def no_grant_is_needed() -> AbstractContextManager[Any]:
    """Publish a compaction whose grant gc has cancelled."""
    real = publish_module.decide_compaction

    def granted(root: Any, entries: Any, compaction: Any, **more: Any) -> Any:
        grant = CompactionGrant(key=compaction.key, granted_at=at(0))
        kept = tuple(g for g in root.compacting if g.key != compaction.key)
        return real(replace(root, compacting=(*kept, grant)), entries, compaction, **more)

    return _with(patch.object(publish_module, "decide_compaction", granted), collections=True)


def gc_forgets_granted_compactions() -> AbstractContextManager[Any]:
    """Delete the files of compactions that may still be published."""
    real = retention.mark

    def mark(*args: Any, **more: Any) -> Any:
        return replace(real(*args, **more), compacting=frozenset())

    return _with(patch.object(retention, "mark", mark), collections=True)


def gc_forgets_compactions() -> AbstractContextManager[Any]:
    """Delete the objects of compactions that entries name."""
    real = retention.mark

    def mark(*args: Any, **more: Any) -> Any:
        found = real(*args, **more)
        named = frozenset(key for key in found.named if not key.startswith("compactions/"))
        return replace(found, named=named)

    return _with(patch.object(retention, "mark", mark), collections=True)


def gc_forgets_records_of_compactions() -> AbstractContextManager[Any]:
    """Take the records of compactions for records outside the chain."""
    nothing = patch.object(marking.Marking, "_records_of_compactions", lambda *_: ())
    return _with(nothing, collections=True)


def numbers_taken_for_positions() -> AbstractContextManager[Any]:
    """Delete rows of a sorted file at their numbers, and not at their positions."""
    untranslated = patch.object(row_order.RowPlaces, "ranges", lambda _, numbers: numbers)
    return _with(untranslated, compactions=(6,))


def gc_forgets_row_orders() -> AbstractContextManager[Any]:
    """Delete the row orders of compactions that entries name."""
    real = retention.Marked.keeps

    def keeps(marked: retention.Marked, key: str) -> bool:
        return real(marked, key) and keys.kind(key) != "row order"

    return _with(patch.object(retention.Marked, "keeps", keeps), collections=True)


MUTANTS: dict[str, Mutant] = {
    "a replacement ignores compactions": replacement_ignores_compactions,
    "a replacement keeps moved rows": replacement_keeps_moved_rows,
    "a shared file is dropped with its first run": shared_file_dropped_with_its_first_run,
    "deletes replace those before": deletes_replace_others,
    "rows of a replaced plan are moved": moves_replaced_rows,
    "rows that another compaction has are moved": forgets_other_compactions,
    "a published compaction is not recognised": published_is_not_recognised,
    "no grant is needed": no_grant_is_needed,
    "gc forgets granted compactions": gc_forgets_granted_compactions,
    "gc forgets compactions": gc_forgets_compactions,
    "gc forgets the records of compactions": gc_forgets_records_of_compactions,
    "numbers of rows are taken for positions": numbers_taken_for_positions,
    "gc forgets row orders": gc_forgets_row_orders,
}
