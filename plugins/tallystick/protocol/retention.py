"""What gc keeps: the mark set of one root and its retained versions, and what every other object is.

Pure. An object that is not marked was listed before the root of the mark was swapped in, so no swap can publish it any
more: every swap in flight holds an If-Match that has moved (docs/design/0001-commit-protocol.md: gc).
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
    """What stays: objects by name, and by place what a granted plan owns.

    `granted` are (interval part, uuid) of granted plans: whatever lies below them may be committed yet. `reported` are
    the interval parts of those grants: a report's key does not name its plan, so all reports there stay.
    """

    named: frozenset[str]
    granted: frozenset[tuple[str, str]]
    reported: frozenset[str]

    def keeps(self, key: str) -> bool:
        """True for what must stay. The root, commit records, notes of calls and what tallystick never wrote stay always.

        Notes of calls stay because a call whose note is gone would be made again, however late. Records
        because the chain is the proof (I4), and because one that the root does not come from shows that someone set the
        root back.
        """
        kind = keys.kind(key)
        if kind in ("root", "record", "call", "foreign") or key in self.named:
            return True
        if kind in ("page", "metadata", "probe"):
            return False
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
    """Mark what `root` with all its `entries` and the `retained` records need.

    `reached`: what the tables' metadata of all of them reach. `reports`: those of committed plans. `others`: whatever
    else the caller wants kept.
    """
    named = {ref.key for ref in root.pages} | {*reached, *reports, *others}
    for record in retained:
        named.update(ref.key for ref in record.pages)
    granted: set[tuple[str, str]] = set()
    for entry in entries:
        if entry.committed is not None:
            named.add(entry.committed.plan)
        if entry.granted is not None:
            granted.add(keys.plan_parts(entry.granted.plan))
    return Marked(
        named=frozenset(named),
        granted=frozenset(granted),
        reported=frozenset(part for part, _ in granted),
    )


def to_cancel(
    entries: Iterable[Entry], planned_at: Mapping[keys.PlanKey, datetime], *, older_than: datetime
) -> tuple[Entry, ...]:
    """Entries whose grant was planned before `older_than`: politeness only, safety does not rest on any clock."""
    return tuple(
        e for e in entries if e.granted is not None and planned_at[e.granted.plan] < older_than
    )


def set_back(root: Root, records: Iterable[keys.RecordKey]) -> keys.RecordKey | None:
    """The key of a record that tells of a newer root than `root`; None where there is none, as it must be.

    `root` was read after the records were listed. A record is written before its swap, under the version of the root that
    was read, plus one: one of version w shows that a root of version w-1 was there. What such a root reached is
    acknowledged, and this root would not mark it.
    """
    newest = max(records, key=keys.record_version, default=None)
    if newest is not None and keys.record_version(newest) > root.version + 1:
        return newest
    return None


def strange_parent(
    chain: Container[str], strays: Iterable[tuple[keys.RecordKey, keys.RecordKey | None]]
) -> keys.RecordKey | None:
    """Of records outside the chain, with their parents, one whose parent is outside too; None where there is none.

    Its root was there, and this one does not come from it.
    """
    return next((k for k, parent in strays if parent is not None and parent not in chain), None)
