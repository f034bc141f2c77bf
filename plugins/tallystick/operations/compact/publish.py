"""Publishes staged compactions: one swap moves the rows of several, and withdraws the grants of those that do not fit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tallystick.errors import Corrupt
from tallystick.format import keys
from tallystick.format.compaction import Compaction
from tallystick.format.interval import Interval
from tallystick.format.page import Entry
from tallystick.format.report import FileReport
from tallystick.format.root import Root, RootTable
from tallystick.lake import Lake, NoUpdate, Snapshot, Update
from tallystick.lake.snapshot import ObjectGoneError
from tallystick.operations.commit.attempt import TableStager
from tallystick.operations.commit.shared_rows import positions_of
from tallystick.protocol.compacting import (
    AlreadyPublished,
    CompactionCancelled,
    CompactionOutdated,
    Positions,
    PublishCompaction,
    decide_compaction,
)
from tallystick.protocol.ledger import Ledger
from tallystick.tables.state import table_state


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCompactions:
    """The result of one swap: the compactions that are published, and why others are not."""

    version: int
    published: tuple[keys.CompactionKey, ...]
    left: Mapping[keys.CompactionKey, str]


@dataclass(slots=True)
class _TableChange:
    add: list[FileReport] = field(default_factory=list)
    drop: set[str] = field(default_factory=set)
    delete: dict[str, Positions] = field(default_factory=dict)
    sorted_by: dict[str, tuple[int, ...]] = field(default_factory=dict)


class PublishAttempt:
    """The state that all tries of one swap share. `since`: the version of the root that granted the compactions."""

    def __init__(
        self, lake: Lake, tables: TableStager, compactions: Sequence[Compaction], *, since: int
    ) -> None:
        self._lake, self._tables, self._since = lake, tables, since
        self._compactions = compactions
        self._sources = _sources(lake, compactions)

    def step(
        self, snapshot: Snapshot
    ) -> Update[PublishedCompactions] | NoUpdate[PublishedCompactions]:
        """Decide on the current root. Safe to repeat: it finds an earlier success in the list of records (C9)."""
        root = snapshot.root
        ledger = snapshot.around(
            frozenset[Interval]().union(
                *(c.intervals for c in (*self._compactions, *self._sources.values()))
            )
        )
        before = self._published_before(root)
        changes: dict[str, _TableChange] = {}
        published: list[keys.CompactionKey] = []
        left: dict[keys.CompactionKey, str] = {}
        for compaction in self._compactions:
            sources = self._sources_of(compaction, ledger)
            decision = decide_compaction(
                root,
                _entries(ledger, (compaction, *sources.values())),
                compaction,
                sources=sources,
                published=before,
            )
            match decision:
                case AlreadyPublished():
                    published.append(compaction.key)
                case CompactionCancelled():
                    left[compaction.key] = "its grant was cancelled"
                case CompactionOutdated(why=why):
                    left[compaction.key] = why
                case PublishCompaction():
                    published.append(compaction.key)
                    self._apply(
                        changes.setdefault(compaction.table, _TableChange()),
                        compaction,
                        sources,
                        decision,
                    )
                    for entry in decision.entries:
                        ledger.put(entry)
        return self._update(snapshot, ledger, changes, published, left, before)

    def _sources_of(
        self, compaction: Compaction, ledger: Ledger
    ) -> dict[keys.CompactionId, Compaction]:
        """Return the sources of a compaction. Raises ObjectGoneError if one is gone that an entry names."""
        named = {
            e.committed.compactions.get(compaction.table)
            for e in _entries(ledger, (compaction,)).values()
            if e is not None and e.committed is not None
        }
        for number in _named(compaction):
            if number not in self._sources and number in named:
                raise ObjectGoneError(keys.compaction(compaction.table, number))
        return {n: self._sources[n] for n in _named(compaction) if n in self._sources}

    def _update(
        self,
        snapshot: Snapshot,
        ledger: Ledger,
        changes: Mapping[str, _TableChange],
        published: Sequence[keys.CompactionKey],
        left: Mapping[keys.CompactionKey, str],
        before: Collection[keys.CompactionKey],
    ) -> Update[PublishedCompactions] | NoUpdate[PublishedCompactions]:
        root = snapshot.root
        new = tuple(key for key in published if key not in before)
        done = {*published, *left}
        granted = tuple(grant for grant in root.compacting if grant.key not in done)
        is_unchanged = not new and granted == root.compacting
        result = PublishedCompactions(
            version=root.version if is_unchanged else root.version + 1,
            published=tuple(published),
            left=dict(left),
        )
        if is_unchanged:
            return NoUpdate(value=result)
        return Update(
            tables={**root.tables, **self._stage(snapshot, changes)},
            topics=root.topics,
            ledger=ledger,
            value=result,
            compactions=new,
            compacting=granted,
        )

    def _stage(
        self, snapshot: Snapshot, changes: Mapping[str, _TableChange]
    ) -> dict[str, RootTable]:
        """Write the metadata of each changed table. Safe to repeat: nothing names it before the swap (C8)."""
        staged: dict[str, RootTable] = {}
        for name, change in sorted(changes.items()):
            table = snapshot.root.tables[name]
            metadata = self._tables.stage(
                table_state(name, table),
                add=change.add,
                drop=change.drop,
                delete={k: p for k, p in change.delete.items() if k not in change.drop},
                sorted_by=change.sorted_by,
                properties={
                    "tallystick.record": snapshot.record_key,
                    "tallystick.compaction": "true",
                },
                now=self._lake.runtime.now(),
            )
            staged[name] = replace(table, metadata=metadata)
        return staged

    def _apply(
        self,
        change: _TableChange,
        compaction: Compaction,
        sources: Mapping[keys.CompactionId, Compaction],
        decision: PublishCompaction,
    ) -> None:
        change.drop.update(decision.drop)
        for source, of_source in zip(sources.values(), decision.sources, strict=True):
            change.drop.update(of_source.drop)
            change.delete.update(positions_of(self._lake, source, of_source.deleted))
        change.add += [one.shared.file for one in decision.files]
        change.sorted_by |= {
            one.shared.file.key: one.shared.order.sorted_by
            for one in decision.files
            if one.shared.order is not None
        }
        deleted = {one.shared.file.key: one.deleted for one in decision.files if one.deleted}
        change.delete.update(positions_of(self._lake, compaction, deleted))

    def _published_before(self, root: Root) -> frozenset[keys.CompactionKey]:
        """Return the compactions that were published since the grant."""
        found: set[keys.CompactionKey] = set()
        key = root.compacted
        while key is not None and keys.record_version(key) > self._since:
            record = self._lake.record(key)
            if record is None:
                raise Corrupt(
                    f"{self._lake.where(key)} is gone, and the root's list of compactions names it.",
                    hint="restore it from a bucket version: tallystick deletes no records. Nothing was changed.",
                )
            found.update(record.compactions)
            key = record.compacted
        return frozenset(found)


def _entries(ledger: Ledger, compactions: Sequence[Compaction]) -> dict[Interval, Entry | None]:
    intervals = frozenset[Interval]().union(*(c.intervals for c in compactions))
    return {interval: ledger.entry(interval) for interval in intervals}


def _named(compaction: Compaction) -> list[keys.CompactionId]:
    return sorted({run.source for run in compaction.runs if run.source is not None})


def _sources(lake: Lake, compactions: Sequence[Compaction]) -> dict[keys.CompactionId, Compaction]:
    """Read the compactions that had moved some of the runs before.

    An entry named them when the runs were read. If gc has deleted one since, no entry names it any more, and the runs
    that name it cannot move: the decision does not need it.
    """
    found: dict[keys.CompactionId, Compaction] = {}
    for compaction in compactions:
        for number in _named(compaction):
            source = lake.compaction(keys.compaction(compaction.table, number))
            if source is not None:
                found[number] = source
    return found
