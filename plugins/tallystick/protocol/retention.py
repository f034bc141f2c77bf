"""The objects that gc keeps: the mark set of one root and its retained versions, and the checks before a deletion.

Pure. gc lists the objects, then swaps the root, then marks from that root. So no later swap can publish an object
that was listed and is not marked: every swap in flight has an If-Match that no longer matches
(docs/design/0001-commit-protocol.md: gc).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from tallystick.format import keys
from tallystick.format.page import Entry
from tallystick.format.record import Record
from tallystick.format.root import Root


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """The objects that stay: `named` by key, and the objects of granted plans by prefix.

    `granted` are (interval part, uuid) of granted plans: any object below them may still be committed. `reported` are
    the interval parts of those grants: a report's key does not name its plan, so all reports there stay. `compacting` are
    the ids of compactions that may still be published: their objects, shared files and row orders stay. `shared` are the
    ids of compactions of which a shared file is named: a stage that found rows in it reads its row order later, also
    after another compaction has moved the rows.
    """

    named: frozenset[str]
    granted: frozenset[tuple[str, str]]
    reported: frozenset[str]
    compacting: frozenset[keys.CompactionId] = frozenset()
    shared: frozenset[keys.CompactionId] = frozenset()

    def keeps(self, key: str) -> bool:
        """Return True if the object must stay.

        The root, commit records, notes of calls and objects that tallystick never writes always stay. Notes of calls stay
        because a call without its note would be made again, regardless of its age. Records stay because the chain is the
        proof (I4), and because a record outside the root's history can show that the root was set back.
        """
        kind = keys.kind(key)
        if kind in ("root", "record", "call", "foreign") or key in self.named:
            return True
        if kind in ("page", "metadata", "deletes", "probe"):
            return False
        if kind == "compaction":
            return keys.compaction_parts(key)[1] in self.compacting
        if kind == "shared file":
            return keys.shared_file_parts(key)[1] in self.compacting
        if kind == "row order":
            table, number = keys.row_order_parts(key)
            named = keys.compaction(table, number) in self.named
            return named or number in self.compacting or number in self.shared
        part, uuid = keys.interval_of(key)
        if uuid is None:
            return part in self.reported
        return (part, uuid) in self.granted


def mark(
    root: Root,
    entries: Iterable[Entry],
    *,
    retained: Iterable[Record],
    reached: Iterable[str],
    reports: Iterable[str],
    others: Iterable[str] = (),
) -> Marked:
    """Mark the objects that `root` with all its `entries` and the `retained` records need.

    `reached`: the objects that the tables' metadata of the root and of these records reach. `reports`: the reports of
    committed plans. `others`: any other objects to keep.
    """
    named = {ref.key for ref in root.pages} | {*reached, *reports, *others}
    for record in retained:
        named.update(ref.key for ref in record.pages)
    granted: set[tuple[str, str]] = set()
    for entry in entries:
        if entry.committed is not None:
            named.add(entry.committed.plan)
            moved = entry.committed.compactions
            named.update(keys.compaction(table, number) for table, number in moved.items())
        if entry.granted is not None:
            granted.add(keys.plan_parts(entry.granted.plan))
    return Marked(
        named=frozenset(named),
        granted=frozenset(granted),
        reported=frozenset(part for part, _ in granted),
        compacting=frozenset(keys.compaction_parts(grant.key)[1] for grant in root.compacting),
        shared=compactions_of(named),
    )


def compactions_of(named: Iterable[str]) -> frozenset[keys.CompactionId]:
    """Return the ids of the compactions whose shared files are among these keys."""
    # The text alone is not enough: a table may have this name, too.
    shared = (key for key in named if "/shared/" in key and keys.kind(key) == "shared file")
    return frozenset(keys.shared_file_parts(key)[1] for key in shared)


def to_cancel(
    entries: Iterable[Entry], planned_at: Mapping[keys.PlanKey, datetime], *, older_than: datetime
) -> tuple[Entry, ...]:
    """Return the entries whose grant was planned before `older_than`.

    The age only protects the work of runs that may still be active: safety does not depend on any clock.
    """
    return tuple(
        e for e in entries if e.granted is not None and planned_at[e.granted.plan] < older_than
    )


def set_back(root: Root, records: Iterable[keys.RecordKey]) -> keys.RecordKey | None:
    """Return the key of a record that proves a newer root than `root`; None if there is none, which is the normal case.

    `root` must have been read after the records were listed. A record is written before its swap, and its version is that
    of the root that was read, plus one. So a record of version w proves that there was a root of version w-1. The objects
    that such a newer root reached are acknowledged, and a mark from `root` would miss them.
    """
    newest = max(records, key=keys.record_version, default=None)
    if newest is not None and keys.record_version(newest) > root.version + 1:
        return newest
    return None


def parent_outside_chain(
    chain: Container[str], strays: Iterable[tuple[keys.RecordKey, keys.RecordKey | None]]
) -> keys.RecordKey | None:
    """Return a record of `strays` whose parent is outside the chain too; None if there is none.

    `strays` are the records outside the chain, with their parents. The parent proves that there was a root which is
    not in the history of the current root.
    """
    return next((k for k, parent in strays if parent is not None and parent not in chain), None)
