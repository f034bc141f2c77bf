"""What a root needs: reads the ledger, the retained records and the tables' metadata. Nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from tallystick.errors import Corrupt
from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.format.page import Entry
from tallystick.format.record import CommittedInterval, Record
from tallystick.format.root import Root
from tallystick.lake import Lake, Snapshot
from tallystick.operations.gc.listing import Listing
from tallystick.protocol import retention
from tallystick.protocol.retention import Marked

T = TypeVar("T")
R = TypeVar("R")
READERS = 8


class TableReach(Protocol):
    """Says what table metadata reaches. tallystick.tables.reach is the real one."""

    def reached(self, metadata: Collection[str]) -> frozenset[str]:
        """Return the keys of every object that these metadata files reach, themselves included. Raises Corrupt."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The marks of one root; `oldest` is the oldest version that stays readable, None where nothing is committed."""

    pipeline: str
    version: int
    oldest: int | None
    marked: Marked
    remarks: tuple[str, ...]


class Marking:
    """Reads what marks need, a few objects at a time ahead. `threads` 0: one after the other, in the caller's thread."""

    def __init__(self, lake: Lake, tables: TableReach, *, threads: int = READERS) -> None:
        self.lake, self.tables, self.threads = lake, tables, threads
        # Records never change: what was replaced before one is read once, for the look before the swap and the mark.
        self._older: dict[tuple[keys.RecordKey, Interval], dict[keys.RecordKey, keys.PlanKey]] = {}

    def marks(
        self,
        snapshot: Snapshot,
        entries: Sequence[Entry],
        listing: Listing,
        *,
        since: datetime,
        doubts_since: datetime,
    ) -> Marks:
        """Mark from one root: `entries` are its ledger's, versions that were current after `since` are retained.

        So is what commits reach that are younger than `doubts_since` and that nothing explains (`_doubtful`). Raises
        Corrupt where something that this root needs is gone or unreadable.
        """
        retained = self._retained(snapshot, since)
        reached, gone = self._reached(snapshot, retained)
        doubtful: list[Record] = []
        for record in self._doubtful(entries, listing, doubts_since):
            try:
                reached |= self.tables.reached(sorted(_metadata(record)))
            except Corrupt:
                continue  # it was never whole, so never published: gc came between it and its swap; or it went before
            doubtful.append(record)
        commits = [c for r in doubtful for c in r.intervals] + self._unpublished(entries)
        files = (key for c in commits for named in c.added.values() for key in named)
        papers = (key for c in commits for key in (c.plan, c.report) if key is not None)
        return Marks(
            pipeline=snapshot.root.pipeline,
            version=snapshot.root.version,
            oldest=min((r.version for r in retained if r.version not in gone), default=None),
            marked=retention.mark(
                snapshot.root,
                entries,
                retained=[*retained, *doubtful],
                reached=reached,
                reports=self._reports(entries, listing),
                others=[*listing.young_probes, *files, *papers],
            ),
            remarks=(
                *(
                    f"version {r.version} can be read no more: {gone[r.version]} is collected"
                    for r in reversed(retained)
                    if r.version in gone
                ),
                *(
                    f"{r.key} tells of a commit that the ledger does not know: it lost its race and was superseded, or "
                    "root.json was set back to before it. What it reaches stays for a month after it."
                    for r in doubtful
                ),
            ),
        )

    def _doubtful(
        self, entries: Sequence[Entry], listing: Listing, since: datetime
    ) -> list[Record]:
        """Records with rows outside the chain, younger than `since`, that no entry explains.

        One that lost its race leaves such a record, and its plan is committed by a later try, or granted still. Where it
        is neither, the run was superseded; or the commit was published, and whoever set the root back has taken it away.
        `refuse_set_back` does not notice that once the root has gone on, so nothing is made final here for a while.
        """
        chain = self._chain(entries)
        slots = (slot for e in entries for slot in (e.committed, e.granted) if slot is not None)
        plans = {slot.plan for slot in slots} | set(chain.values())

        def doubtful(key: keys.RecordKey) -> Record | None:
            record = self._record(key)
            unknown = any(c.added and c.plan not in plans for c in record.intervals)
            return record if unknown and record.committed_at > since else None

        strays = [key for key in listing.records if key not in chain]
        return [record for record in self.each(doubtful, strays) if record is not None]

    def _reached(
        self, snapshot: Snapshot, retained: Sequence[Record]
    ) -> tuple[frozenset[str], dict[int, str]]:
        """What the tables of the root and of the retained versions reach, and the versions of which metadata is gone.

        A collection with a shorter grace, before this one or beside it, takes an old version's metadata first.
        """
        now = _metadata(snapshot.root)
        looked: dict[int, str] | None = None
        while True:
            gone: dict[int, str] = {}
            older: set[str] = set()
            for record in retained:
                named = _metadata(record) - now
                lost = [k for k in sorted(named - older) if self.lake.store.get(k) is None]
                if lost:
                    gone[record.version] = lost[0]
                older |= named.difference(lost)
            try:
                return self.tables.reached(sorted(now | older)), gone
            except Corrupt:
                # Taken between the look and here? Then the next look finds more gone; damage looks the same again.
                if gone == looked:
                    raise
                looked = gone

    def _retained(self, snapshot: Snapshot, since: datetime) -> list[Record]:
        """The newest commit, and every older one that was followed by the next after `since`."""
        found: list[Record] = []
        key = snapshot.root.record
        while key is not None and (not found or found[-1].committed_at > since):
            found.append(self._record(key))
            key = found[-1].parent
        return found

    def _unpublished(self, entries: Iterable[Entry]) -> list[CommittedInterval]:
        """Replaced commits whose rows an output still needs: it is to take them back, or they are half out.

        Those too that an output holds which the committed plan does not name: it may be declared again.
        """
        found: list[CommittedInterval] = []
        for entry in entries:
            slots = entry.outputs.values()
            needed = {uuid for slot in slots for uuid in slot.needed}
            if slots and entry.committed is not None:
                now = keys.plan_parts(entry.committed.plan)[1]
                needed |= {s.published for s in slots if s.published and s.wanted != now}
                needed -= {now}
            for commit in self.lake.commits_of(entry) if needed else ():
                uuid = keys.plan_parts(commit.plan)[1]
                if uuid in needed:
                    found.append(commit)
                    needed.discard(uuid)
                if not needed:
                    break
        return found

    def _reports(self, entries: Iterable[Entry], listing: Listing) -> list[str]:
        """Reports of committed plans. A record is read only where an interval has more than one report."""
        kept: list[str] = []
        unclear: list[Entry] = []
        for entry in entries:
            there = listing.reports.get(entry.interval.part, [])
            if entry.committed is None or not there:
                continue
            if len(there) == 1:
                kept += there
            else:
                unclear.append(entry)
        for done in self.each(self._commit_of, unclear):
            kept += [done.report] if done.report is not None else []
        return kept

    def _commit_of(self, entry: Entry) -> CommittedInterval:
        assert entry.committed is not None
        return self._commit_in(entry.committed.record, entry)

    def _commit_in(self, key: keys.RecordKey, entry: Entry) -> CommittedInterval:
        found = next((c for c in self._record(key).intervals if c.interval == entry.interval), None)
        if found is None:
            raise Corrupt(
                f"{self.lake.where(key)} says nothing of {entry.interval}, which names it.",
                hint="nothing was deleted. Run `tally verify`: the ledger and its records disagree.",
            )
        return found

    def _record(self, key: keys.RecordKey) -> Record:
        record = self.lake.record(key)
        if record is None:
            raise Corrupt(
                f"{self.lake.where(key)} is gone, and the ledger or the chain of commits names it.",
                hint="nothing was deleted. Find out who deleted it, and restore it from a bucket version.",
            )
        return record

    def _parent(self, key: keys.RecordKey) -> keys.RecordKey | None:
        """A record's parent alone: the rest, its index of pages above all, is too large to hold for thousands."""
        return self._record(key).parent

    # ------------------------------------------------------------ was the root set back?

    def _chain(self, entries: Iterable[Entry]) -> dict[keys.RecordKey, keys.PlanKey]:
        """Every record of the chain, with a plan that it committed: those of entries, and those that these replaced.

        Each record of the chain committed an interval that is committed still, or that a later one replaced.
        """
        committed = [e for e in entries if e.committed is not None]
        found = {e.committed.record: e.committed.plan for e in committed if e.committed is not None}
        # The first generation of an interval replaced nothing.
        again = [e for e in committed if e.generation > 1]
        for older in self.each(self._replaced, again):
            found |= older
        return found

    def _replaced(self, entry: Entry) -> dict[keys.RecordKey, keys.PlanKey]:
        assert entry.committed is not None
        newest = (entry.committed.record, entry.interval)
        if newest in self._older:
            return self._older[newest]
        found: dict[keys.RecordKey, keys.PlanKey] = {}
        key = self._commit_of(entry).replaces
        while key is not None and key not in found:
            commit = self._commit_in(key, entry)
            found[key] = commit.plan
            key = commit.replaces
        self._older[newest] = found
        return found

    def refuse_set_back(self, snapshot: Snapshot, listing: Listing) -> None:
        """Raise Corrupt if a record shows that a newer root was there, whose objects `snapshot` would not mark.

        `snapshot` must have been read after the listing.
        """
        newer = retention.set_back(snapshot.root, listing.records)
        if newer is None:
            chain = self._chain(snapshot.whole_ledger().entries)
            strays = [key for key in listing.records if key not in chain]
            newer = retention.strange_parent(
                chain, zip(strays, self.each(self._parent, strays), strict=True)
            )
        if newer is not None:
            raise Corrupt(
                f"{self.lake.where(newer)} was written on a root that {self.lake.where(keys.ROOT)}, version "
                f"{snapshot.root.version}, does not come from: the root was set back, and what the lost one reached "
                "would be collected. Nothing was deleted.",
                hint="restore the newest version of root.json from the bucket's versions. If it is lost for "
                "good, take away by hand the records that `tally verify` names, the last trace of those commits.",
            )

    def each(self, read: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """read(item) for each, in order."""
        if not self.threads or len(items) < 2:
            return [read(item) for item in items]
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(read, items))


def _metadata(state: Root | Record) -> set[str]:
    return {t.metadata for t in state.tables.values() if t.metadata is not None}
