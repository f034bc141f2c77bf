"""Why gc keeps an object: the first rule that applies. What it keeps at all is decided by gc's marks alone."""

from __future__ import annotations

from collections.abc import Sequence, Set
from datetime import datetime
from typing import Literal, get_args

from tallystick.format import keys
from tallystick.format.page import Entry
from tallystick.lake import Lake, Snapshot
from tallystick.operations.gc.listing import Listing
from tallystick.operations.gc.marking import Marking
from tallystick.operations.status.past import chain
from tallystick.protocol.registering import readable_from
from tallystick.protocol.retention import Marked, compactions_of

Rule = Literal[
    "current", "history", "grace", "granted", "outputs", "doubt", "always", "foreign", "nothing"
]
RULES: tuple[Rule, ...] = get_args(Rule)
"""In the order of an answer."""

_OF_INTERVALS = ("plan", "claim", "report", "data file", "scratch")


class KeptBy:
    """The rules for the objects of one root.

    `current`: what the root and the current snapshots of its tables need. `history`: what only older snapshots of its
    tables list. `grace`: what older versions within the reader grace need in addition.
    """

    def __init__(
        self,
        marked: Marked,
        entries: Sequence[Entry],
        *,
        current: Set[str],
        history: Set[str],
        grace: Set[str],
    ) -> None:
        self._marked = marked
        self._current, self._history, self._grace = current, history, grace
        slots = [(e.interval.part, s) for e in entries for s in e.outputs.values()]
        self._published = {part for part, _ in slots}
        self._needed = {u for _, s in slots for u in (*s.needed, s.published) if u is not None}

    def rule(self, key: str) -> Rule:
        """Return the rule by which gc keeps an object; `nothing` if it would delete it."""
        kind = keys.kind(key)
        if kind == "foreign":
            return "foreign"
        if not self._marked.keeps(key):
            return "nothing"
        if kind == "row order":
            return self._of_row_order(key)
        if kind == "root" or key in self._current:
            return "current"
        if kind in ("record", "call"):
            return "always"
        if key in self._history:
            return "history"
        if key in self._grace:
            return "grace"
        if kind in _OF_INTERVALS:
            return self._of_interval(key)
        return "granted" if self._is_compacting(key, kind) else "doubt"

    def _of_row_order(self, key: str) -> Rule:
        """Return the rule of the compaction, or that of its shared files, which are read with their row orders."""
        table, number = keys.row_order_parts(key)
        if keys.compaction(table, number) in self._current:
            return "current"
        if number in compactions_of(self._history):
            return "history"
        if number in compactions_of(self._grace):
            return "grace"
        return "granted" if number in self._marked.compacting else "doubt"

    def _of_interval(self, key: str) -> Rule:
        part, uuid = keys.interval_of(key)
        if part in self._marked.reported if uuid is None else (part, uuid) in self._marked.granted:
            return "granted"
        needed = part in self._published if uuid is None else uuid in self._needed
        return "outputs" if needed else "doubt"

    def _is_compacting(self, key: str, kind: keys.Kind) -> bool:
        """Return True if the object is of a compaction that may still be published."""
        if kind == "compaction":
            return keys.compaction_parts(key)[1] in self._marked.compacting
        return kind == "shared file" and keys.shared_file_parts(key)[1] in self._marked.compacting


def current_documents(
    lake: Lake, marking: Marking, snapshot: Snapshot, entries: Sequence[Entry], listing: Listing
) -> set[str]:
    """Return the pages of the root, and the plan, the report and the compactions of each committed interval.

    A record is read only if an interval has more than one report.
    """
    found: set[str] = {ref.key for ref in snapshot.root.pages}
    unclear: list[Entry] = []
    for entry in entries:
        if entry.committed is None:
            continue
        found.add(entry.committed.plan)
        found.update(keys.compaction(*named) for named in entry.committed.compactions.items())
        reports = listing.reports.get(entry.interval.part, [])
        if len(reports) == 1:
            found.update(reports)
        elif reports:
            unclear.append(entry)
    commits = marking.each(lambda e: next(lake.commits_of(e), None), unclear)
    return found | {c.report for c in commits if c is not None and c.report is not None}


def pages_since(lake: Lake, snapshot: Snapshot, since: datetime) -> set[str]:
    """Return the pages of the versions that gc retains: those that were current after `since`, and the newest commit.

    Also those to which a pointer of a registration may be set.
    """
    needed = readable_from(snapshot.root)
    found: set[str] = set()
    for record in chain(lake, snapshot):
        found.update(ref.key for ref in record.pages)
        parent = -1 if record.parent is None else keys.record_version(record.parent)
        if record.committed_at <= since and (needed is None or parent < needed):
            break
    return found
