"""Decides what a table's shared files contain, and the result of publishing a compaction: total functions of both.

A compaction moves rows between files. It changes no interval's plan, generation, account, grant or outputs (I13). A run
is living if the ledger's entry of its interval has the run's plan committed and names the compaction for the table. A
shared file is in the table if one of its runs is living, and the positions of the others are deleted. Each decision is
made again on every root that is read, so a lost race and a lost reply are handled in the same way
(docs/design/0009-compaction.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from tallystick.format import keys
from tallystick.format.compaction import Compaction, Run, SharedFile
from tallystick.format.interval import Interval
from tallystick.format.page import Committed, Entry
from tallystick.format.root import Root

RUNS_MIN = 2
"""A compaction of fewer runs is not published: it would only copy a file."""

Entries = Mapping[Interval, Entry | None]
Positions = tuple[tuple[int, int], ...]
"""Ranges `first <= position < end` of a file, ascending and not adjacent.

Those of a shared file are of its row numbers here. They differ from the positions in the file if the file is sorted.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedContent:
    """The state of one shared file: in the table or not, and the positions that are deleted if it is."""

    shared: SharedFile
    is_listed: bool
    deleted: Positions


def content(compaction: Compaction, entries: Entries) -> tuple[SharedContent, ...]:
    """Return the state of each shared file of a published compaction. `entries`: those of all its intervals."""
    return tuple(_content(compaction, shared, entries) for shared in compaction.files)


def _content(compaction: Compaction, shared: SharedFile, entries: Entries) -> SharedContent:
    deleted: list[tuple[int, int]] = []
    listed = False
    for placed in shared.placed():
        if is_living(compaction, entries.get(placed.run.interval), placed.run):
            listed = True
        elif deleted and deleted[-1][1] == placed.first:
            deleted[-1] = (deleted[-1][0], placed.end)
        else:
            deleted.append((placed.first, placed.end))
    return SharedContent(shared=shared, is_listed=listed, deleted=tuple(deleted))


def is_living(compaction: Compaction, entry: Entry | None, run: Run) -> bool:
    """Return True if the table has the rows of `run` in a shared file of `compaction`."""
    committed = _committed_as(entry, run)
    return committed is not None and committed.compactions.get(compaction.table) == compaction.id


def _committed_as(entry: Entry | None, run: Run) -> Committed | None:
    if entry is None or entry.committed is None or entry.committed.plan != run.plan:
        return None
    return entry.committed


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedChange:
    """The change of a compaction's shared files in the table: files to drop, and the new deleted positions by file."""

    drop: tuple[str, ...]
    deleted: Mapping[str, Positions]


def shared_change(compaction: Compaction, before: Entries, after: Entries) -> SharedChange:
    """Return the change that follows from the change of the entries. No run becomes living by it, so no file is added."""
    drop: list[str] = []
    deleted: dict[str, Positions] = {}
    for was, now in zip(content(compaction, before), content(compaction, after), strict=True):
        key = was.shared.file.key
        if was.is_listed and not now.is_listed:
            drop.append(key)
        elif now.is_listed and now.deleted != was.deleted:
            deleted[key] = now.deleted
    return SharedChange(drop=tuple(drop), deleted=deleted)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishCompaction:
    """The decision to publish: the changed entries, the reported files that the table loses, the shared files it gets.

    `sources`: the changes of the compactions that had moved some of the runs before.
    """

    entries: tuple[Entry, ...]
    drop: tuple[str, ...]
    files: tuple[SharedContent, ...]
    sources: tuple[SharedChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyPublished:
    """The compaction was published by an earlier try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionCancelled:
    """The compaction has no grant: it was cancelled, and gc may have deleted its files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOutdated:
    """The shared files do not fit the root any more; the compaction's grant is withdrawn."""

    why: str


CompactionDecision = PublishCompaction | AlreadyPublished | CompactionCancelled | CompactionOutdated


def decide_compaction(
    root: Root,
    entries: Entries,
    compaction: Compaction,
    *,
    sources: Mapping[keys.CompactionId, Compaction],
    published: Collection[keys.CompactionKey] = (),
) -> CompactionDecision:
    """Decide the result of publishing `compaction` under `root`.

    `sources`: the compactions that its runs name. `entries`: the ledger's entries of all intervals of it and of these.
    `published`: the compactions of the root's list of records. A plan moves with all of its runs, or not at all: if it
    was replaced since it was read, or moved by another compaction, its positions in the shared files are deleted.
    """
    if compaction.key in published:
        return AlreadyPublished()
    if all(grant.key != compaction.key for grant in root.compacting):
        return CompactionCancelled()
    table = root.tables.get(compaction.table)
    if table is None or table.uuid != compaction.uuid:
        return _outdated(f"table {compaction.table} is not the table that was read")
    if (table.columns, table.partition_by) != (compaction.columns, compaction.partition_by):
        return _outdated(f"table {compaction.table} has other columns or partition rules since")
    moved = [r for r in compaction.runs if _can_move(entries.get(r.interval), r, compaction.table)]
    if len(moved) < RUNS_MIN:
        return _outdated(f"{len(moved)} of its {len(compaction.runs)} files are as they were read")
    if (left := _left_behind(moved, sources)) is not None:
        return _outdated(f"it moves other files of the plan of {left}, and not this file")
    after = {**entries, **{e.interval: e for e in _named(entries, moved, compaction)}}
    return PublishCompaction(
        entries=tuple(e for i, e in after.items() if e is not None and e != entries[i]),
        drop=tuple(run.key for run in moved if not _is_in_source(run, sources)),
        files=tuple(one for one in content(compaction, after) if one.is_listed),
        sources=tuple(shared_change(source, entries, after) for source in sources.values()),
    )


def _outdated(why: str) -> CompactionOutdated:
    return CompactionOutdated(why=why)


def _can_move(entry: Entry | None, run: Run, table: str) -> bool:
    committed = _committed_as(entry, run)
    return committed is not None and committed.compactions.get(table) == run.source


def _is_in_source(run: Run, sources: Mapping[keys.CompactionId, Compaction]) -> bool:
    """Return True if the run's rows were in a shared file before. A source may list runs that did not move with it."""
    return run.source is not None and any(r.key == run.key for r in sources[run.source].runs)


def _left_behind(
    moved: Collection[Run], sources: Mapping[keys.CompactionId, Compaction]
) -> str | None:
    """Return a file of a moved plan that a source has and that does not move: its entry would name it no more."""
    here = {run.key for run in moved}
    plans = {(run.plan, run.source) for run in moved}
    for number, source in sources.items():
        for run in source.runs:
            if (run.plan, number) in plans and run.key not in here:
                return run.key
    return None


def _named(entries: Entries, moved: Collection[Run], compaction: Compaction) -> Iterator[Entry]:
    for interval in sorted({run.interval for run in moved}, key=lambda one: one.start):
        entry = entries[interval]
        assert entry is not None  # _can_move
        assert entry.committed is not None
        named = {**entry.committed.compactions, compaction.table: compaction.id}
        yield replace(entry, committed=replace(entry.committed, compactions=named))


def in_place(files: Collection[str], compaction: Compaction | None) -> tuple[str, ...]:
    """Return the reported files of a committed plan that are in the table as they were staged.

    `compaction`: the one that the entry of the plan names for the table, or None.
    """
    moved = set() if compaction is None else {run.key for run in compaction.runs}
    return tuple(key for key in files if key not in moved)
