"""One lake root: the only module that reads a root, swaps it, and reads a consistent snapshot.

Every change of a lake is a function of the root that was just read (`swap`). After a lost race, a lost reply or a late
PUT, the same is done: read the root again and decide again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TypeVar, cast

from tallystick.errors import (
    Corrupt,
    IdentityChanged,
    InvalidPipeline,
    InvalidRequest,
    NothingPlanned,
    ReportRejected,
    RootVanished,
    SettingsError,
    SwapContended,
)
from tallystick.format import keys
from tallystick.format.canonical import BODY_BYTES_MAX
from tallystick.format.compaction import Compaction
from tallystick.format.page import PAGE_BYTES_MAX, Entry, Page
from tallystick.format.page_outline import PageOutline
from tallystick.format.plan import Plan
from tallystick.format.record import CommittedInterval, Record
from tallystick.format.report import Report
from tallystick.format.root import Root, first_root
from tallystick.lake.room import RoomRequest, Turn
from tallystick.lake.snapshot import ObjectGoneError, RootMovedError, Snapshot
from tallystick.lake.update import NoUpdate, Update
from tallystick.protocol.invariants import check_pages, check_swap
from tallystick.runtime import Runtime
from tallystick.runtime.version import VERSION
from tallystick.store import Applied, ETag, NotApplied, Store, Unknown
from tallystick.store.create_once import create_once
from tallystick.store.probe import prove_conditional_writes
from tallystick.store.tries import WriteTries, pause

T = TypeVar("T")
CONTENDED_S = 600.0
CHAIN_MAX = 64
OVERTAKEN_MAX = 5


class Lake:
    """A lake root in a store. `proven`: skip the probe of conditional writes, e.g. if the caller has made it.

    `begun`: False if the first run may not have planned yet, as for a command. Then a prefix without any object of a lake
    raises NothingPlanned, and not RootVanished.
    """

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        *,
        proven: bool = False,
        begun: bool = True,
        page_bytes_max: int = PAGE_BYTES_MAX,
    ) -> None:
        self.store = store
        self.runtime = runtime
        self.page_bytes_max = page_bytes_max
        self._proven = proven
        self._begun = begun
        self._pages: dict[keys.PageKey, Page] = {}

    # ------------------------------------------------------------ reading

    def load(self) -> Snapshot | None:
        """Read the root; return None if there is none. Raises IdentityChanged if it is a copy of another lake's root."""
        found = self.store.get(keys.ROOT)
        if found is None:
            return None
        self._begun = True
        root = Root.decode(found.body, where=self.where(keys.ROOT))
        if root.uri is not None and root.uri != self.store.uri:
            raise IdentityChanged(
                f"{self.where(keys.ROOT)}: expected the root of {self.store.uri}, found a copy of the root of "
                f"{root.uri}.",
                hint=f"use {root.uri}: its tables name their files by this URI, so a copy would read and replace files "
                "there. What can be moved and how: docs/how-to/move-a-lake.md.",
            )
        named = {ref.key for ref in root.pages}
        self._pages = {key: page for key, page in self._pages.items() if key in named}
        record_key = keys.record(root.version + 1, self.runtime.uuid())
        return Snapshot(root=root, etag=found.etag, record_key=record_key, lake=self)

    def load_existing(self) -> Snapshot:
        """Read the root of a lake that exists; raises RootVanished, or NothingPlanned (see `begun`), if there is none."""
        snapshot = self.load()
        if snapshot is None:
            if not self._begun and self._is_empty():
                raise NothingPlanned(
                    f"nothing has been planned at {self.store.uri} yet.",
                    hint="unpause the pipeline's DAG (`airflow dags unpause DAG`) or trigger it: its first run begins "
                    "the lake. If it has run, check the lake's URI and AWS_ENDPOINT_URL_S3.",
                )
            raise RootVanished(
                f"{self.where(keys.ROOT)} does not exist.",
                hint="check the lake's URI and AWS_ENDPOINT_URL_S3. If the object was deleted, restore it from a "
                "bucket version: no other object records which rows are committed.",
            )
        return snapshot

    def _is_empty(self) -> bool:
        """Return True if the prefix has no object that a lake consists of. A probe's scratch is not one.

        Return False if the store does not permit listings: then nothing is known.
        """
        try:
            return not any(
                next(iter(self.store.list(prefix)), None) for prefix in keys.LAKE_PREFIXES
            )
        except SettingsError:
            return False

    def read(self, question: Callable[[Snapshot], T]) -> T:
        """Return `question(snapshot)`, answered from exactly one root.

        If an object is missing and the root has moved, gc may have deleted the object: the root is read again. Real
        damage shows at every try. On a busy lake the root moves each time, so the last of the tries raises Corrupt.
        """
        overtaken = 0
        while True:
            snapshot = self.load_existing()
            try:
                return question(snapshot)
            except ObjectGoneError as missing:
                self._still_stale(snapshot, missing)
            except Corrupt:
                overtaken += 1
                if overtaken > OVERTAKEN_MAX or not self._moved(snapshot):
                    raise

    def _still_stale(self, snapshot: Snapshot, missing: ObjectGoneError) -> None:
        now = self.load_existing()
        if now.etag == snapshot.etag:
            raise Corrupt(
                f"{self.where(keys.ROOT)} version {snapshot.root.version} names {self.where(str(missing))}, which does "
                "not exist.",
                hint="restore it from a bucket version, and find out what deleted it (a lifecycle rule?): tallystick did "
                "not. Nothing was changed.",
            ) from missing

    def _moved(self, snapshot: Snapshot) -> bool:
        """Return True if the root has moved: gc may have deleted objects that only the old root reached (C13)."""
        return self.load_existing().etag != snapshot.etag

    def where(self, key: str) -> str:
        """Return the full address of a key, for messages."""
        return f"{self.store.uri}/{key}"

    def _page(self, key: keys.PageKey) -> Page:
        if key not in self._pages:
            self._pages[key] = self._read_page(key)
        return self._pages[key]

    def _read_page(self, key: keys.PageKey) -> Page:
        return Page.decode(self._page_body(key), where=self.where(key))

    def _page_outline(self, key: keys.PageKey) -> PageOutline:
        return PageOutline.decode(self._page_body(key), where=self.where(key))

    def _page_body(self, key: keys.PageKey) -> bytes:
        found = self.store.get(key)
        if found is None:
            raise ObjectGoneError(key)
        return found.body

    def plan(self, key: str) -> Plan | None:
        """Read a plan; return None if gc has deleted it."""
        found = self.store.get(keys.check_plan(key))
        if found is None:
            return None
        plan = Plan.decode(found.body, where=self.where(key))
        return self._named(plan, key, plan.key)

    def report(self, key: str) -> Report | None:
        """Read a report; return None if gc has deleted it."""
        found = self.store.get(keys.check_report(key))
        if found is None:
            return None
        report = Report.decode(found.body, where=self.where(key))
        return self._named(report, key, report.key)

    def record(self, key: str) -> Record | None:
        """Read a commit record; return None if gc has deleted it."""
        found = self.store.get(keys.check_record(key))
        if found is None:
            return None
        record = Record.decode(found.body, where=self.where(key))
        return self._named(record, key, record.key)

    def compaction(self, key: str) -> Compaction | None:
        """Read a compaction; return None if it is not there: it was never written, or gc has deleted it."""
        found = self.store.get(keys.check_compaction(key))
        if found is None:
            return None
        compaction = Compaction.decode(found.body, where=self.where(key))
        return self._named(compaction, key, compaction.key)

    def compaction_of(self, key: keys.CompactionKey) -> Compaction:
        """Read a compaction that the root just read names; raises ObjectGoneError if it is gone."""
        found = self.compaction(key)
        if found is None:
            raise ObjectGoneError(key)
        return found

    def _named(self, value: T, key: str, own: str) -> T:
        if own != key:
            raise Corrupt(
                f"{self.where(key)}: expected its own key inside, found {own}.",
                hint="remove the copy of another object, or restore the original.",
            )
        return value

    def earlier_commits(self, entry: Entry) -> tuple[CommittedInterval, ...]:
        """Return the entry's commit and those that it replaced, newest first, as far as records are kept.

        Returns at most CHAIN_MAX commits.
        """
        return tuple(islice(self.commits_of(entry), CHAIN_MAX))

    def commits_of(self, entry: Entry) -> Iterator[CommittedInterval]:
        """Yield the entry's commit and all that it replaced, newest first, as far as records are kept.

        Each commit costs one request, so stop when enough commits are read. Raises Corrupt if a record replaces one that
        is not older: such a chain would never end.
        """
        key = entry.committed.record if entry.committed else None
        while key is not None:
            record = self.record(key)
            found = (
                next((c for c in record.intervals if c.interval == entry.interval), None)
                if record
                else None
            )
            if found is None:
                return
            yield found
            if found.replaces is not None and keys.record_version(
                found.replaces
            ) >= keys.record_version(key):
                raise Corrupt(
                    f"{self.where(key)}: expected `replaces` to be an older record, found {found.replaces}.",
                    hint="run `tally verify`, and restore the record from a bucket version. Nothing was changed.",
                )
            key = found.replaces

    # ------------------------------------------------------------ writing

    def put_new(self, key: str, body: bytes) -> None:
        """Write an immutable object under a key that only this call uses. Raises InvalidRequest if it is too large.

        Safe to repeat: the key contains a new uuid, so `exists` can only mean that an earlier try of the same bytes
        landed. That is checked; raises Corrupt if the bytes differ. C2, C8: nothing reads the object before a root names
        it.
        """
        if len(body) > BODY_BYTES_MAX:
            raise InvalidRequest(
                f"{self.where(key)}: expected at most {BODY_BYTES_MAX} bytes, found {len(body)}.",
                hint="request less at once (a shorter from/to); or write fewer and larger files (a larger "
                "records_per_task).",
            )
        if not create_once(self.store, key, body, runtime=self.runtime):
            raise Corrupt(
                f"{self.where(key)}: expected a new key, found an object of another writer.",
                hint="check that no process copies objects into the lake; clear the task to run it again.",
            )

    def open(self, pipeline: str, *, renamed_from: str | None = None) -> Snapshot:
        """Read the pipeline's root; create the first one if the prefix is empty.

        `renamed_from`: a root with this name is the pipeline's, too; the caller's swap renames it. Safe to repeat:
        create-if-absent has one winner, and all others read the winner's root. Raises RootVanished if there are objects
        but no root, InvalidPipeline if the root belongs to another pipeline.
        """
        tries = WriteTries(self.runtime, self.where(keys.ROOT))
        while True:
            snapshot = self.load()
            if snapshot is not None:
                self.check_owner(snapshot, pipeline, renamed_from=renamed_from)
                return snapshot
            self.check_no_leftovers()
            self.prove()
            body = first_root(pipeline, self.runtime.uuid(), uri=self.store.uri).encode()
            outcome = tries.send(partial(self.store.create, keys.ROOT, body))
            if isinstance(outcome, Unknown):
                tries.wait_or_raise(outcome.because)

    def check_owner(
        self, snapshot: Snapshot, pipeline: str, *, renamed_from: str | None = None
    ) -> None:
        """Raise InvalidPipeline if the root belongs to another pipeline; `renamed_from`: an older name of this one."""
        if snapshot.root.pipeline not in (pipeline, renamed_from):
            raise self._other_pipeline(snapshot.root, pipeline)

    def _other_pipeline(self, root: Root, pipeline: str) -> InvalidPipeline:
        found = root.pipeline
        hint = (
            f"give each pipeline a warehouse of its own; or, if {found!r} is the old name of this pipeline, declare "
            f"renamed_from={found!r}."
        )
        if pipeline in root.former_names:
            hint = (
                f"deploy the declaration with the name {found!r}, to which the pipeline was renamed; or, to rename it "
                f"back, declare renamed_from={found!r}."
            )
        return InvalidPipeline(
            f"{self.store.uri}: expected the lake of pipeline {pipeline!r}, found that of {found!r}.",
            hint=hint,
        )

    def check_no_leftovers(self) -> None:
        """Raise RootVanished if the prefix has objects of a lake, but no root."""
        for prefix in (keys.LEDGER_PREFIX, keys.COMMITS_PREFIX, keys.TABLES_PREFIX):
            for listed in self.store.list(prefix):
                if self.store.get(keys.ROOT) is not None:
                    return  # another task has created the first root in the meantime
                raise RootVanished(
                    f"{self.where(keys.ROOT)} does not exist, but {self.where(listed.key)} does.",
                    hint="restore root.json from a bucket version, or use an empty prefix. A new root is never "
                    "created over an old lake.",
                )

    def prove(self) -> None:
        """Refuse a store that does not honour conditional writes, once per process. Raises StoreRefused."""
        if not self._proven:
            scratch = keys.probe(self.runtime.uuid())
            prove_conditional_writes(
                self.store,
                scratch=scratch,
                sleep=self.runtime.sleep,
                monotonic_s=self.runtime.monotonic_s,
            )
            self._proven = True

    def swap(
        self, step: Callable[[Snapshot], Update[T] | NoUpdate[T]], *, turn: Turn | None = None
    ) -> T:
        """Swap the root for the update that `step` returns; the PUT is the commit.

        `turn`: the behaviour towards other writers; if None, the swap requests room from publishers after it was lost
        once. Safe to repeat: `step` decides on each root that is read, and finds its own earlier success there. Raises
        what `step` raises, SwapContended if other writers won for CONTENDED_S seconds, OutcomeUnknown if the outcome of a
        PUT stays unknown until the deadline.
        """
        turn = turn or RoomRequest(store=self.store, runtime=self.runtime)
        try:
            value = self._swap(step, turn)
        except Exception:
            turn.after()
            raise
        turn.after()
        return value

    def _swap(self, step: Callable[[Snapshot], Update[T] | NoUpdate[T]], turn: Turn) -> T:
        """Run the tries of one swap. Safe to repeat, for the same reason as `swap`."""
        deadline = self.runtime.monotonic_s() + CONTENDED_S
        tries = overtaken = 0
        while True:
            turn.before()
            snapshot = self.load_existing()
            turn.after_read(snapshot.root, tries)
            try:
                change = step(snapshot)
            except ObjectGoneError as missing:
                self._still_stale(snapshot, missing)
                continue
            except RootMovedError:
                tries += 1
                self._check_in_time(tries, deadline)
                continue
            except (Corrupt, ReportRejected):
                # C13: the root that `step` decided on has been replaced, and gc may have deleted the missing object.
                # Real damage shows at every try, even if other writers move the root each time.
                overtaken += 1
                if overtaken <= OVERTAKEN_MAX and self._moved(snapshot):
                    continue
                raise
            if isinstance(change, NoUpdate):
                return _answer(change)
            # Only after the root was read again: if an earlier PUT landed and its reply was lost, `step` has just found
            # its own commit there and returned NoUpdate (C9).
            self._check_in_time(tries, deadline)
            if self._publish(snapshot, change):
                return _answer(change)
            pause(self.runtime, tries)
            tries += 1

    def _check_in_time(self, lost: int, deadline: float) -> None:
        if lost and self.runtime.monotonic_s() >= deadline:
            raise SwapContended(
                f"{lost} swaps of {self.where(keys.ROOT)} were lost to other writers.",
                hint="run the task again; let fewer tasks commit at once (pool, max_active_tis_per_dag).",
            )

    def _publish(self, snapshot: Snapshot, change: Update[T]) -> bool:
        """Write pages and record, then PUT the root. Return True if it landed, False if it certainly did not.

        After False, read the root again and decide again.
        """
        before = snapshot.root
        index, pages = change.ledger.flush(
            iter(self.runtime.uuid, None), bytes_max=self.page_bytes_max
        )
        name = before.pipeline if change.pipeline is None else change.pipeline
        is_renamed = name != before.pipeline
        has_record = bool(change.committed or change.compactions)
        after = Root(
            pipeline=name,
            version=before.version + 1,
            id=self.runtime.uuid(),
            record=snapshot.record_key if has_record else before.record,
            tables=change.tables,
            pages=index,
            topics=change.topics,
            outputs=before.outputs if change.outputs is None else change.outputs,
            pending=tuple(
                ref.key
                for ref in index
                if (pages[ref.key].pending if ref.key in pages else ref.key in before.pending)
            ),
            former_names=(*before.former_names, *([before.pipeline] if is_renamed else ())),
            uri=before.uri,
            compacting=before.compacting if change.compacting is None else change.compacting,
            compacted=snapshot.record_key if change.compactions else before.compacted,
            registrations=before.registrations
            if change.registrations is None
            else change.registrations,
            reader_grace=change.reader_grace if change.declares else before.reader_grace,
        )
        check_swap(before, change.ledger.original(), after, change.ledger)
        check_pages(before, after, change.ledger, pages)
        for key, page in pages.items():
            self.put_new(key, page.encode())
        if has_record:
            record = Record(
                key=snapshot.record_key,
                version=after.version,
                root_id=after.id,
                parent=before.record,
                committed_at=self.runtime.now(),
                library=VERSION,
                intervals=change.committed,
                tables=after.tables,
                pages=index,
                compactions=change.compactions,
                compacted=before.compacted if change.compactions else None,
            )
            self.put_new(record.key, record.encode())
        self._pages.update(pages)
        return self._replace_root(after.encode(), snapshot.etag)

    def _replace_root(self, body: bytes, etag: ETag) -> bool:
        """PUT the root until the outcome is certain. Return True if the PUT landed.

        Safe to repeat (C9, C10, C11): while the outcome is unknown, the same bytes are sent with the same If-Match. After
        the answer `changed`, the token has moved for good and no delayed copy of the PUT can land; the next read of the
        root shows if this PUT had landed. Nothing is deleted, regardless of the outcome. Raises RootVanished if the root
        is gone, OutcomeUnknown if the outcome stays unknown until the deadline.
        """
        tries = WriteTries(self.runtime, self.where(keys.ROOT))
        while True:
            match tries.send(lambda: self.store.replace(keys.ROOT, body, expected=etag)):
                case Applied():
                    return True
                case NotApplied(because="missing"):
                    raise RootVanished(
                        f"{self.where(keys.ROOT)} existed and is gone.",
                        hint="restore it from a bucket version: no other object records which rows are committed.",
                    )
                case NotApplied():
                    return False
                case Unknown(because=why):
                    tries.wait_or_raise(why)


def _answer(update: Update[T] | NoUpdate[T]) -> T:
    if update.then_raise is not None:
        raise update.then_raise
    return cast("T", update.value)
