"""Finds the small files of a lake's tables in one snapshot, with the places of rows that were moved before."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from tallystick.errors import InvalidRequest, listed
from tallystick.format import keys
from tallystick.format.compaction import Compaction, Run
from tallystick.format.page import Entry
from tallystick.format.root import Root, RootTable
from tallystick.lake import Lake, Snapshot
from tallystick.operations.compact.groups import FileGroup, SmallFile, grouped
from tallystick.protocol.compacting import is_living
from tallystick.tables.partitioning import PartitionValue

FILES_MIN = 5
SMALL_SHARE = 0.75
"""A file of this share of the target size is large enough, and is not moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactOptions:
    """The files to compact: tables (none: all), intervals that end at or before `until`, sizes in bytes.

    `target_bytes`: the size of a shared file; None: the declared file size of each table. `files_min`: the files that a
    compaction must at least have in the place of one.
    """

    until: datetime
    tables: tuple[str, ...] = ()
    target_bytes: int | None = None
    files_min: int = FILES_MIN

    def __post_init__(self) -> None:
        least = self.target_bytes if self.target_bytes is not None else 1
        if least < 1 or self.files_min < 2:
            raise InvalidRequest(
                f"expected a target size of at least one byte and at least 2 files, found {least} and {self.files_min}.",
                hint="use e.g. --target-size 128MB and --min-files 5.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A file that a table lists. `is_current`: it has the current partition rules of the table."""

    key: str
    size_bytes: int
    rows: int
    partition: tuple[PartitionValue, ...]
    is_current: bool


class TableFiles(Protocol):
    """A reader of the files of tables. The implementation is in tallystick.operations.compact.local."""

    def files(self, name: str, table: RootTable) -> Iterable[TableFile]:
        """Return the files that a table of a root lists. Raises Corrupt."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenCompaction:
    """One compaction to be made: its table as the root has it, and the files that become one shared file each."""

    table: str
    state: RootTable
    groups: tuple[FileGroup, ...]


def choose(
    lake: Lake, snapshot: Snapshot, tables: TableFiles, options: CompactOptions
) -> tuple[ChosenCompaction, ...]:
    """Return the compactions that one root allows. Reads manifests and the ledger; opens no data file.

    Not chosen are intervals with a grant or a pending output. Raises InvalidRequest if a table is unknown, and
    Corrupt.
    """
    root = snapshot.root
    _check_tables(root, options.tables)
    entries = {
        e.committed.plan: e
        for e in snapshot.whole_ledger().entries
        if e.committed is not None and _is_settled(e, options.until)
    }
    found: list[ChosenCompaction] = []
    for name in options.tables or sorted(root.tables):
        table = root.tables[name]
        if table.metadata is None or not entries:
            continue
        target_bytes = options.target_bytes or table.upkeep.file_size_bytes
        files = _small_files(lake, name, tables.files(name, table), entries, target_bytes)
        found += [
            ChosenCompaction(table=name, state=table, groups=groups)
            for groups in grouped(files, target_bytes=target_bytes, files_min=options.files_min)
        ]
    return tuple(found)


def _check_tables(root: Root, tables: Collection[str]) -> None:
    if unknown := sorted(set(tables) - root.tables.keys()):
        raise InvalidRequest(
            f"the lake has no table {unknown[0]!r}.",
            hint=f"name one of its tables: {listed(sorted(root.tables))}.",
        )


def _is_settled(entry: Entry, until: datetime) -> bool:
    return entry.granted is None and not entry.pending and entry.interval.end <= until


def _small_files(
    lake: Lake,
    name: str,
    files: Iterable[TableFile],
    entries: Mapping[keys.PlanKey, Entry],
    target_bytes: int,
) -> Iterator[SmallFile]:
    """Yield the small files of a table, and the living runs of small compactions, with where their rows are."""
    live = {f.key: f for f in files}
    new: list[SmallFile] = []
    for key, file in live.items():
        if keys.kind(key) != "data file" or not file.is_current:
            continue
        entry = entries.get(keys.plan_of_data_file(key))
        if entry is None or file.size_bytes > SMALL_SHARE * target_bytes:
            continue
        assert entry.committed is not None
        source = entry.committed.compactions.get(name)
        run = Run(key=key, rows=file.rows, source=source)
        new.append(
            SmallFile(
                run=run, key=key, first=0, partition=file.partition, size_bytes=file.size_bytes
            )
        )
    named = {
        e.committed.compactions[name]
        for e in entries.values()
        if e.committed is not None and name in e.committed.compactions
    }
    taken: set[keys.CompactionId] = set()
    unmoved = sum(f.size_bytes for f in new if f.run.source is None)
    for number in sorted(named):
        compaction = lake.compaction_of(keys.compaction(name, number))
        moved = list(_moved_files(compaction, entries, live))
        size_bytes = sum(f.size_bytes for f in moved)
        # A compaction is made again only with as many new bytes: each row is then rewritten a few times in its life.
        if moved and size_bytes <= unmoved and _is_small(compaction, live, target_bytes):
            taken.add(number)
            yield from moved
    yield from (f for f in new if f.run.source is None or f.run.source in taken)


def _is_small(compaction: Compaction, live: Mapping[str, TableFile], target_bytes: int) -> bool:
    sizes = [f.file.size_bytes for f in compaction.files if f.file.key in live]
    return bool(sizes) and sum(sizes) / len(sizes) <= target_bytes / 2


def _moved_files(
    compaction: Compaction, entries: Mapping[keys.PlanKey, Entry], live: Mapping[str, TableFile]
) -> Iterator[SmallFile]:
    """Yield the living runs of a compaction; nothing if a file of it has older partition rules."""
    if any(not live[f.file.key].is_current for f in compaction.files if f.file.key in live):
        return
    for shared in compaction.files:
        if shared.file.key not in live:
            continue
        for placed in shared.placed():
            if not is_living(compaction, entries.get(placed.run.plan), placed.run):
                continue
            yield SmallFile(
                run=Run(key=placed.run.key, rows=placed.run.rows, source=compaction.id),
                key=shared.file.key,
                first=placed.first,
                shared=shared,
                partition=shared.file.partition,
                size_bytes=max(1, shared.file.size_bytes * placed.run.rows // shared.file.rows),
            )
