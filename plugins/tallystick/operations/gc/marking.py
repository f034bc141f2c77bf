"""Finds the objects that a root needs: reads the ledger, the retained records and table metadata. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol, TypeVar

from tallystick.errors import Corrupt
from tallystick.format import keys
from tallystick.format.compaction import CompactionGrant
from tallystick.format.interval import Interval
from tallystick.format.page import Entry
from tallystick.format.record import CommittedInterval, Record
from tallystick.format.root import Root
from tallystick.lake import Lake, Snapshot
from tallystick.operations.fed_tables import tables_that_feed
from tallystick.operations.gc.listing import Listing
from tallystick.protocol import retention
from tallystick.protocol.registering import readable_from
from tallystick.protocol.retention import Marked

T = TypeVar("T")
R = TypeVar("R")
READERS = 8


class TableReach(Protocol):
    """The interface that finds the objects that table metadata reaches; tallystick.tables.reach implements it."""

    def reached(self, metadata: Collection[str]) -> frozenset[str]:
        """Return the keys of all objects that these metadata files reach, including the files. Raises Corrupt."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The marks of one root. `oldest` is the oldest version that stays readable, or None if nothing is committed."""

    pipeline: str
    version: int
    oldest: int | None
    marked: Marked
    remarks: tuple[str, ...]


class Marking:
    """The reader of everything that marks depend on, with `threads` reads at a time; 0 reads in the caller's thread."""

    def __init__(self, lake: Lake, tables: TableReach, *, threads: int = READERS) -> None:
        self.lake, self.tables, self.threads = lake, tables, threads
        # A cache of the commits that a record's commit replaced, directly or not: records never change, and both the
        # check before the swap and the mark need them.
        self._older: dict[tuple[keys.RecordKey, Interval], dict[keys.RecordKey, keys.PlanKey]] = {}
        # The records of compactions, which no entry names.
        self._compacted: dict[keys.RecordKey, Record] = {}

    def marks(
        self,
        snapshot: Snapshot,
        entries: Sequence[Entry],
        listing: Listing,
        *,
        since: datetime,
        doubts_since: datetime,
        compacting: Sequence[CompactionGrant] | None = None,
    ) -> Marks:
        """Mark everything that one root needs. `entries` are those of its ledger.

        `compacting`: the granted compactions that count; None: those of the root.

        Versions that were current after `since` are retained. Objects that unexplained commits younger than
        `doubts_since` reach are marked too (`_doubtful`). Raises Corrupt if an object that this root needs is gone or
        unreadable.
        """
        retained = self._retained(snapshot, since)
        reached, gone = self._reached(snapshot, retained)
        doubtful: list[Record] = []
        root = snapshot.root
        if compacting is not None:
            root = replace(root, compacting=tuple(compacting))
        for record in self._doubtful(root, entries, listing, doubts_since):
            try:
                reached |= self.tables.reached(sorted(_metadata(record)))
            except Corrupt:
                continue  # incomplete: gc ran before its swap, so it was never published; or it was deleted before
            doubtful.append(record)
        commits = [c for r in doubtful for c in r.intervals] + self._unpublished(entries)
        files = (key for c in commits for named in c.added.values() for key in named)
        documents = (key for c in commits for key in (c.plan, c.report) if key is not None)
        return Marks(
            pipeline=snapshot.root.pipeline,
            version=snapshot.root.version,
            oldest=min((r.version for r in retained if r.version not in gone), default=None),
            marked=retention.mark(
                root,
                entries,
                retained=[*retained, *doubtful],
                reached=reached,
                reports=self._reports(entries, listing),
                others=[
                    *listing.young_probes,
                    *files,
                    *documents,
                    *(key for r in doubtful for key in r.compactions),
                ],
            ),
            remarks=(
                *(
                    f"version {r.version} can no longer be read: {gone[r.version]} is collected"
                    for r in reversed(retained)
                    if r.version in gone
                ),
                *(
                    f"{r.key} describes a commit that is not in the ledger: it lost its race and was superseded, or "
                    "root.json was set back to before it. gc keeps what it reaches for a month after it."
                    for r in doubtful
                ),
            ),
        )

    def _doubtful(
        self, root: Root, entries: Sequence[Entry], listing: Listing, since: datetime
    ) -> list[Record]:
        """Return the records outside the chain that have rows, are younger than `since`, and that nothing explains.

        A commit that lost its race leaves a record outside the chain. Its plan is explained if a later try committed
        it, or if it is still granted. If neither is true, the run was superseded; or the commit was published, and the
        root was set back to an older version afterwards. `refuse_set_back` cannot detect that after further swaps, so
        the objects of such a commit are kept for some time. A compaction is explained in the same way: a later try
        published it, or it is still granted.
        """
        chain = self._chain(root, entries)
        explained = {grant.key for grant in root.compacting}
        explained.update(key for r in self._records_of_compactions(root) for key in r.compactions)
        slots = (slot for e in entries for slot in (e.committed, e.granted) if slot is not None)
        plans = {slot.plan for slot in slots} | set(chain.values())

        def doubtful(key: keys.RecordKey) -> Record | None:
            record = self._record(key)
            unknown = any(c.added and c.plan not in plans for c in record.intervals) or any(
                compaction not in explained for compaction in record.compactions
            )
            return record if unknown and record.committed_at > since else None

        strays = [key for key in listing.records if key not in chain]
        return [record for record in self.each(doubtful, strays) if record is not None]

    def _reached(
        self, snapshot: Snapshot, retained: Sequence[Record]
    ) -> tuple[frozenset[str], dict[int, str]]:
        """Return what the tables of the root and the retained versions reach, and a missing key per incomplete version.

        A gc run with a shorter grace, earlier or at the same time, deletes an old version's metadata first.
        """
        now = _metadata(snapshot.root)
        gone_before: dict[int, str] | None = None
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
                # If another gc run deleted a file after the check above, the next check finds more files gone. If the
                # next check finds the same, the lake is damaged.
                if gone == gone_before:
                    raise
                gone_before = gone

    def _retained(self, snapshot: Snapshot, since: datetime) -> list[Record]:
        """Return the records of the newest commit and of every older one whose successor was committed after `since`.

        Also return every version to which a pointer of a registration may be set.
        """
        found: list[Record] = []
        key = snapshot.root.record
        needed = readable_from(snapshot.root)
        while key is not None and (
            not found
            or found[-1].committed_at > since
            or (needed is not None and keys.record_version(key) >= needed)
        ):
            found.append(self._record(key))
            key = found[-1].parent
        return found

    def _unpublished(self, entries: Iterable[Entry]) -> list[CommittedInterval]:
        """Return the replaced commits whose rows an output still needs, to remove them or to finish a publication.

        Includes commits published to an output that the committed plan does not name, because it may be declared again.
        """
        found: list[CommittedInterval] = []
        moved: list[Entry] = []
        for entry in entries:
            slots = entry.outputs.values()
            if slots and entry.committed is not None and entry.committed.compactions:
                moved.append(entry)
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
        return found + self.each(self._moved_from, moved)

    def _moved_from(self, entry: Entry) -> CommittedInterval:
        """Return the entry's commit with its files of tables that feed an output, also those that no table lists now.

        If the interval is replaced, its rows are removed from the output, and a publication reads the rows of a plan
        exactly as they were staged.
        """
        commit, fed = self._commit_of(entry), tables_that_feed(self.lake, entry)
        added = {t: files for t, files in commit.added.items() if fed is None or t in fed}
        return replace(commit, added=added)

    def _reports(self, entries: Iterable[Entry], listing: Listing) -> list[str]:
        """Return the reports of committed plans. Read a record only if an interval has more than one report."""
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
                f"{self.lake.where(key)}: expected the commit of {entry.interval}, whose entry names this record, "
                "found none.",
                hint="nothing was deleted. Run `tally verify`: the ledger and its records disagree.",
            )
        return found

    def _record(self, key: keys.RecordKey) -> Record:
        record = self.lake.record(key)
        if record is None:
            raise Corrupt(
                f"{self.lake.where(key)} is gone, and the ledger or the chain of commits names it.",
                hint="nothing was deleted. Find out what deleted the object, and restore it from a bucket version.",
            )
        return record

    def _parent(self, key: keys.RecordKey) -> keys.RecordKey | None:
        """Return only the parent of a record: thousands of whole records with their page indexes use too much memory."""
        return self._record(key).parent

    # ------------------------------------------------------------ detecting a root that was set back

    def _chain(
        self, root: Root, entries: Iterable[Entry]
    ) -> dict[keys.RecordKey, keys.PlanKey | None]:
        """Return every record of the chain with a plan that it committed: those of entries, and those that they replaced.

        This is complete: each record of the chain committed an interval that is still committed, or that a later record
        replaced; or it describes compactions, and the root's list has it, with no plan.
        """
        committed = [e for e in entries if e.committed is not None]
        found: dict[keys.RecordKey, keys.PlanKey | None]
        found = {e.committed.record: e.committed.plan for e in committed if e.committed is not None}
        # The first generation of an interval replaced nothing.
        again = [e for e in committed if e.generation > 1]
        for older in self.each(self._replaced, again):
            found |= older
        found.update((record.key, None) for record in self._records_of_compactions(root))
        return found

    def _records_of_compactions(self, root: Root) -> Iterator[Record]:
        """Yield the records of the root's list of compactions, newest first. Each is read once."""
        key = root.compacted
        while key is not None:
            if key not in self._compacted:
                self._compacted[key] = self._record(key)
            yield self._compacted[key]
            key = self._compacted[key].compacted

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
        """Raise Corrupt if a record shows that there was a newer root, whose objects would not be marked from `snapshot`.

        `snapshot` must be read after the listing.
        """
        newer = retention.set_back(snapshot.root, listing.records)
        if newer is None:
            chain = self._chain(snapshot.root, snapshot.whole_ledger().entries)
            strays = [key for key in listing.records if key not in chain]
            newer = retention.parent_outside_chain(
                chain, zip(strays, self.each(self._parent, strays), strict=True)
            )
        if newer is not None:
            raise Corrupt(
                f"{self.lake.where(newer)} was written on a root that is no ancestor of {self.lake.where(keys.ROOT)}, "
                f"version {snapshot.root.version}: the root was set back, and what the lost root reached would be "
                "collected. Nothing was deleted.",
                hint="restore the newest version of root.json from the bucket's versions. If it is lost for "
                "good, remove the records that `tally verify` names by hand: they are the last trace of those commits.",
            )

    def each(self, read: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Return read(item) for each item, in order."""
        if not self.threads or len(items) < 2:
            return [read(item) for item in items]
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(read, items))


def _metadata(state: Root | Record) -> set[str]:
    return {t.metadata for t in state.tables.values() if t.metadata is not None}
