"""The order of a collection: list, swap, mark, delete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice

from tallystick.errors import Corrupt
from tallystick.format import keys
from tallystick.format.keys import Kind
from tallystick.format.page import Entry
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
FOREIGN_TOLD = 5

# Metadata before what it names: a collection that dies leaves versions that say "gone" at once, never half a table.
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
    reader_grace: timedelta = READER_GRACE,
    cancel_after: timedelta | None = CANCEL_AFTER,
    doubt_grace: timedelta = DOUBT_GRACE,
    watch: Watch | None = None,
    batch: int = BATCH,
    threads: int = READERS,
) -> Collection:
    """Find what nothing needs any more, and delete it where `delete` says so; else nothing at all is changed.

    `reader_grace`: versions that were current within it stay readable. `cancel_after`: grants that were planned longer
    ago are given up, None for none; their runs end as Superseded, and a clear plans anew over the same boundaries.
    `doubt_grace`: how long a commit that the ledger does not know keeps what it reaches; it may have been published.

    Safe to repeat: what is deleted was unreachable before the first deletion and stays so, since no swap from before
    this one's can land (C13); what a collection that died has left is found by the next. Runs beside commits, plans and
    other collections. Raises Corrupt where an object that the root needs is gone or unreadable, or where the root was set
    back: nothing is deleted then; StoreRefused, and what the lake raises.
    """
    now = lake.runtime.now()
    before = None if cancel_after is None else now - cancel_after
    marking = Marking(lake, tables, threads=threads)
    watch = watch or _silent
    with Listing(lake.store, probes_since=now - PROBE_GRACE, watch=watch) as listing:
        lake.read(lambda snapshot: marking.refuse_set_back(snapshot, listing))
        cancelled = _swap(lake, before) if delete else ()
        since, doubts_since = now - reader_grace, now - doubt_grace

        def marked(snapshot: Snapshot) -> tuple[tuple[CancelledGrant, ...], Marks]:
            entries = snapshot.whole_ledger().entries
            given_up = () if delete else _to_cancel(lake, entries, before)
            left = _without(entries, given_up)
            marks = marking.marks(snapshot, left, listing, since=since, doubts_since=doubts_since)
            return given_up, marks

        given_up, marks = lake.read(marked)
        story = _story(lake, listing, marks)
        if delete:
            _delete(lake, listing, marks.marked, batch, watch, total=story.total.objects)
    return replace(story, deleted=delete, cancelled=cancelled if delete else given_up)


def _swap(lake: Lake, before: datetime | None) -> tuple[CancelledGrant, ...]:
    """Swap a root in which the old grants are gone, and nothing else has changed.

    Safe to repeat: one swap more than needed moves a version number. It is sent even where no grant is given up: it moves
    the token that every swap in flight holds, so that nothing listed before can be published any more (C13).
    """
    lake.prove()
    done: dict[str, CancelledGrant] = {}

    def step(snapshot: Snapshot) -> Update[None]:
        ledger = snapshot.whole_ledger()
        # Its owner was quicker than an earlier try; what is gone altogether, such a try has taken (C9).
        committed = {e.committed.plan for e in ledger.entries if e.committed is not None}
        for plan in done.keys() & committed:
            del done[plan]
        cancelled = _to_cancel(lake, ledger.entries, before)
        # A window on what changes: checking 100,000 untouched intervals takes longer than a busy lake stands still.
        edited = snapshot.around([one.interval for one in cancelled])
        for one in cancelled:
            edited.cancel(one.interval)
            done[one.plan] = one
        return Update(
            tables=snapshot.root.tables, topics=snapshot.root.topics, ledger=edited, value=None
        )

    lake.swap(step)
    return tuple(done.values())


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
            hint="nothing was deleted. `tally release` gives the grant up; then find out who deleted the plan.",
        )
    return plan.planned_at


def _without(entries: tuple[Entry, ...], given_up: tuple[CancelledGrant, ...]) -> list[Entry]:
    """The entries as if these grants were gone: what a dry run marks from."""
    plans = {one.plan for one in given_up}
    left = [without_grant(e) if e.granted and e.granted.plan in plans else e for e in entries]
    return [e for e in left if e is not None]


def _story(lake: Lake, listing: Listing, marks: Marks) -> Collection:
    kept: Counter[Kind] = Counter()
    kept_bytes: Counter[Kind] = Counter()
    garbage: Counter[Kind] = Counter()
    garbage_bytes: Counter[Kind] = Counter()
    examples: dict[Kind, list[str]] = {}
    foreign: list[str] = []
    for key, size_bytes in listing:
        kind = keys.kind(key)
        if kind == "foreign" and len(foreign) < FOREIGN_TOLD:
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
    """Delete what was listed and is not marked.

    Safe to repeat: an absent object is no error, a key never comes twice, and nothing here can be reached again.
    """
    done = 0
    for phase in _PHASES:
        doomed = _doomed(listing, marked, phase)
        while some := list(islice(doomed, batch)):
            lake.store.delete(some)
            done += len(some)
            watch("deleting", done, total)


def _doomed(listing: Listing, marked: Marked, phase: Callable[[Kind, str], bool]) -> Iterator[str]:
    return (k for k, _ in listing if phase(keys.kind(k), k) and not marked.keeps(k))


def _silent(what: str, done: int, total: int) -> None:
    del what, done, total
