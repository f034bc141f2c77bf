"""The steps of a gc run: list, swap, mark, delete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice

from tallystick.errors import Corrupt
from tallystick.format import keys
from tallystick.format.compaction import CompactionGrant
from tallystick.format.keys import Kind
from tallystick.format.page import Entry
from tallystick.format.root import Root
from tallystick.lake import Lake, Snapshot, Update
from tallystick.operations.gc.listing import Listing, Watch
from tallystick.operations.gc.marking import READERS, Marking, Marks, TableReach
from tallystick.operations.gc.result import CancelledGrant, Collection, Heap
from tallystick.protocol import retention
from tallystick.protocol.ledger import without_grant
from tallystick.protocol.retention import Marked

READER_GRACE = timedelta(hours=24)
CANCEL_AFTER = timedelta(days=7)
PROBE_GRACE = timedelta(hours=1)
DOUBT_GRACE = timedelta(days=30)
BATCH = 1000
EXAMPLES = 3
FOREIGN_LISTED = 5

# Delete metadata files before the objects that they name. If gc stops halfway, opening an old version then fails at once,
# and no reader gets half of a table.
_PHASES: tuple[Callable[[Kind, str], bool], ...] = (
    lambda kind, key: kind == "metadata" and key.endswith(".metadata.json"),
    lambda kind, key: kind == "metadata" and not key.endswith(".metadata.json"),
    lambda kind, _: kind != "metadata",
)


def collect(
    lake: Lake,
    tables: TableReach,
    *,
    delete: bool = False,
    reader_grace: timedelta | None = None,
    cancel_after: timedelta | None = CANCEL_AFTER,
    doubt_grace: timedelta = DOUBT_GRACE,
    watch: Watch | None = None,
    batch: int = BATCH,
    threads: int = READERS,
) -> Collection:
    """Find the objects that nothing needs, and delete them if `delete` is True; otherwise change nothing.

    `reader_grace`: versions that were current within this time stay readable; None: the one that the root has, or
    READER_GRACE. `cancel_after`: grants whose plan is older are cancelled; None cancels none. Runs with a cancelled grant
    end as Superseded, and a clear makes a new plan over the same boundaries. `doubt_grace`: how long a commit that is not
    in the ledger keeps the objects that it reaches, because it may have been published.

    Safe to repeat: the deleted objects were unreachable before the first deletion and stay unreachable, because no swap
    that was in flight before the swap of this run can succeed (C13). If a run stops halfway, the next run finds the rest.
    Can run at the same time as commits, plans and other gc runs. Raises Corrupt if an object that the root needs is gone
    or unreadable, or if the root was set back (nothing is deleted then); StoreRefused; and the errors of the lake.
    """
    now = lake.runtime.now()
    before = None if cancel_after is None else now - cancel_after
    marking = Marking(lake, tables, threads=threads)
    watch = watch or _silent
    with Listing(lake.store, probes_since=now - PROBE_GRACE, watch=watch) as listing:
        lake.read(lambda snapshot: marking.refuse_set_back(snapshot, listing))
        cancelled = _swap(lake, before) if delete else ()
        doubts_since = now - doubt_grace

        def marked(snapshot: Snapshot) -> tuple[tuple[CancelledGrant, ...], Marks]:
            entries = snapshot.whole_ledger().entries
            to_cancel = () if delete else _to_cancel(lake, entries, before)
            left = _without(entries, to_cancel)
            compacting = snapshot.root.compacting
            marks = marking.marks(
                snapshot,
                left,
                listing,
                compacting=compacting if delete else _young(compacting, before),
                since=now - grace_of(snapshot.root, reader_grace),
                doubts_since=doubts_since,
            )
            return to_cancel, marks

        to_cancel, marks = lake.read(marked)
        found = _collection(lake, listing, marks)
        if delete:
            _delete(lake, listing, marks.marked, batch, watch, total=found.total.objects)
    return replace(found, deleted=delete, cancelled=cancelled if delete else to_cancel)


def grace_of(root: Root, given: timedelta | None) -> timedelta:
    """Return the reader grace: the one that is given, or the declared one, or READER_GRACE."""
    if given is not None:
        return given
    return READER_GRACE if root.reader_grace is None else root.reader_grace


def _swap(lake: Lake, before: datetime | None) -> tuple[CancelledGrant, ...]:
    """Swap in a root without the old grants; nothing else changes.

    Safe to repeat: an extra swap only increases the version number. The swap is made even if there is no grant to cancel:
    it changes the ETag that every swap in flight sends, so that none of them can publish an object listed before (C13).
    """
    lake.prove()
    done: dict[str, CancelledGrant] = {}

    def step(snapshot: Snapshot) -> Update[None]:
        ledger = snapshot.whole_ledger()
        # `step` runs again after a failed try. If a plan is committed by now, its owner was faster than that try. If its
        # grant is gone, the try took effect although its reply was lost (C9).
        committed = {e.committed.plan for e in ledger.entries if e.committed is not None}
        for plan in done.keys() & committed:
            del done[plan]
        cancelled = _to_cancel(lake, ledger.entries, before)
        # Edit only the pages that change: to check 100,000 unchanged intervals takes longer than the time between two
        # swaps of a busy lake.
        edited = snapshot.around([one.interval for one in cancelled])
        for one in cancelled:
            edited.cancel(one.interval)
            done[one.plan] = one
        return Update(
            tables=snapshot.root.tables,
            topics=snapshot.root.topics,
            ledger=edited,
            value=None,
            compacting=_young(snapshot.root.compacting, before),
        )

    lake.swap(step)
    return tuple(done.values())


def _young(
    compacting: tuple[CompactionGrant, ...], before: datetime | None
) -> tuple[CompactionGrant, ...]:
    """Return the granted compactions that are not cancelled: a cancelled one loses its work, and no rows."""
    return tuple(grant for grant in compacting if before is None or grant.granted_at >= before)


def _to_cancel(
    lake: Lake, entries: tuple[Entry, ...], before: datetime | None
) -> tuple[CancelledGrant, ...]:
    if before is None:
        return ()
    planned = {e.granted.plan: _planned_at(lake, e.granted.plan) for e in entries if e.granted}
    return tuple(
        CancelledGrant(
            interval=e.interval,
            request=e.granted.request,
            plan=e.granted.plan,
            planned_at=planned[e.granted.plan],
            committed=e.committed is not None,
        )
        for e in retention.to_cancel(entries, planned, older_than=before)
        if e.granted is not None
    )


def _planned_at(lake: Lake, key: keys.PlanKey) -> datetime:
    plan = lake.plan(key)
    if plan is None:
        raise Corrupt(
            f"{lake.where(key)} is gone, and it is granted.",
            hint="nothing was deleted. Cancel the grant with `tally release`; then find out what deleted the plan.",
        )
    return plan.planned_at


def _without(entries: tuple[Entry, ...], to_cancel: tuple[CancelledGrant, ...]) -> list[Entry]:
    """Return the entries without these grants; a dry run marks from them."""
    plans = {one.plan for one in to_cancel}
    left = [without_grant(e) if e.granted and e.granted.plan in plans else e for e in entries]
    return [e for e in left if e is not None]


def _collection(lake: Lake, listing: Listing, marks: Marks) -> Collection:
    kept: Counter[Kind] = Counter()
    kept_bytes: Counter[Kind] = Counter()
    garbage: Counter[Kind] = Counter()
    garbage_bytes: Counter[Kind] = Counter()
    examples: dict[Kind, list[str]] = {}
    foreign: list[str] = []
    for key, size_bytes in listing:
        kind = keys.kind(key)
        if kind == "foreign" and len(foreign) < FOREIGN_LISTED:
            foreign.append(key)
        if marks.marked.keeps(key):
            kept[kind] += 1
            kept_bytes[kind] += size_bytes
            continue
        garbage[kind] += 1
        garbage_bytes[kind] += size_bytes
        some = examples.setdefault(kind, [])
        if len(some) < EXAMPLES:
            some.append(key)
    return Collection(
        uri=lake.store.uri,
        pipeline=marks.pipeline,
        deleted=False,
        version=marks.version,
        oldest=marks.oldest,
        cancelled=(),
        kept={k: Heap(objects=n, size_bytes=kept_bytes[k]) for k, n in kept.items()},
        garbage={k: Heap(objects=n, size_bytes=garbage_bytes[k]) for k, n in garbage.items()},
        examples={k: tuple(some) for k, some in examples.items()},
        foreign=tuple(foreign),
        remarks=marks.remarks,
    )


def _delete(
    lake: Lake, listing: Listing, marked: Marked, batch: int, watch: Watch, *, total: int
) -> None:
    """Delete every listed object that is not marked.

    Safe to repeat: to delete an absent object is no error, no key is listed twice, and no deleted object can be reached
    again.
    """
    done = 0
    for phase in _PHASES:
        garbage = _garbage(listing, marked, phase)
        while some := list(islice(garbage, batch)):
            lake.store.delete(some)
            done += len(some)
            watch("deleting", done, total)


def _garbage(listing: Listing, marked: Marked, phase: Callable[[Kind, str], bool]) -> Iterator[str]:
    return (k for k, _ in listing if phase(keys.kind(k), k) and not marked.keeps(k))


def _silent(what: str, done: int, total: int) -> None:
    del what, done, total
