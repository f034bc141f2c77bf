"""The use case `publish`: publish the pending rows of outputs, and record it in the ledger. No JVM.

For each output and interval: prepare, record `in_progress` by a swap, publish, record `published` by a swap. If a
publisher dies, the next one continues at that point: the ledger records which publication is in progress, and the output
records how far it got.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tallystick.errors import Corrupt, OutputUnavailable, TallystickError
from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.format.outputs import OutputSlot
from tallystick.format.page import Entry
from tallystick.format.plan import Plan
from tallystick.format.report import FileReport, Report
from tallystick.lake import Lake, NoUpdate, Snapshot, Update
from tallystick.lake.room import RoomGiver, Turn
from tallystick.outputs.port import Leftover, NoRows, Output, Publication, Rows, Scope, Sweeping
from tallystick.pipeline import LINEAGE, pipeline_from_spec
from tallystick.protocol import publishing as slots
from tallystick.store import Store

log = logging.getLogger(__name__)

Watch = Callable[["Published"], None]
Opens = Callable[[], Output]
Noted = Literal["set", "there", "refused"]
# Reads the rows of a plan's files, in their order. The implementation is in tallystick.tables.rows.
RowsOf = Callable[[Store, Sequence[FileReport]], Rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One interval whose rows an output now has. `resumed`: the publication was in progress already."""

    output: str
    interval: Interval
    generation: int
    plan: keys.PlanId
    rows: int
    resumed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NotPublished:
    """One interval that an output still lacks, with the error. `interval` is None if the output itself failed."""

    output: str
    interval: Interval | None
    error: TallystickError


def publish(
    lake: Lake, outputs: Mapping[str, Opens], *, rows_of: RowsOf, watch: Watch | None = None
) -> tuple[NotPublished, ...]:
    """Publish all pending intervals of these outputs; return those that failed.

    `outputs` has a function per output name that opens the output. It is called when the output is next, and a failure to
    open it does not block the other outputs.

    Safe to repeat: published intervals are left alone, and a publication in progress is finished first. If an interval
    fails, the other intervals and outputs are still published. Only if some of its rows may be in the output already, the
    other intervals of that output wait.
    """
    failed: list[NotPublished] = []
    turn = RoomGiver(store=lake.store, runtime=lake.runtime)
    for name, opens in outputs.items():
        output = None
        try:
            output = opens()
            if lake.read(_PendingIntervals(output=name).pending):
                root = lake.load_existing().root
                output.begin(Scope(lake=lake.store.uri, pipeline=root.first_name))
                failed += _publish_all(lake, name, output, rows_of, watch or _silent, turn)
            if isinstance(output, Sweeping):
                _sweep(lake, name, output)
        except Exception as error:  # noqa: BLE001 - a user's own output may raise anything, and must not block others
            failed.append(NotPublished(output=name, interval=None, error=_ours(name, error)))
        finally:
            close(name, output)
    return tuple(failed)


def close(name: str, output: Output | None) -> None:
    """Close an output if it was opened. Safe to repeat, as `Output.close` is."""
    try:
        if output is not None:
            output.close()
    except Exception as error:  # noqa: BLE001 - as above: the ledger has what was done, and the process ends soon
        log.warning("output %s was not closed: %s: %s", name, type(error).__name__, error)


def _ours(output: str, error: Exception) -> TallystickError:
    if isinstance(error, TallystickError):
        return error
    found = OutputUnavailable(
        f"output {output}: {type(error).__name__}: {error}.",
        hint="wait for the retry. If the error comes back, fix the output: it must raise a TallystickError.",
    )
    found.__cause__ = error
    return found


def _publish_all(
    lake: Lake, name: str, output: Output, rows_of: RowsOf, watch: Watch, turn: Turn
) -> list[NotPublished]:
    failed: dict[Interval, NotPublished] = {}
    owing = _PendingIntervals(output=name)
    while True:
        pending = lake.read(owing.pending)
        todo = next((i for i in pending if i not in failed), None)
        if todo is None or (pending[0] in failed and _begun(lake, name, pending[0])):
            # Another publisher may have started the interval that failed here. Only one may be in progress.
            return list(failed.values())
        try:
            done = publish_one(lake, name, output, todo, rows_of=rows_of, turn=turn, owing=owing)
        except Exception as error:  # noqa: BLE001 - a user's own output may raise anything
            failed[todo] = NotPublished(output=name, interval=todo, error=_ours(name, error))
            if _begun(lake, name, todo):
                # Some of its rows may be in the output: nothing else is published before it is finished.
                return list(failed.values())
        else:
            if done is not None:
                watch(done)


def _sweep(lake: Lake, name: str, output: Sweeping) -> None:
    """Let the output delete what it prepared for plans that will never be published.

    Safe to repeat, also while another process prepares: it prepares only plans that are granted or pending in the ledger,
    and the ledger is read after the leftovers are listed. A plan that is neither was superseded or is published, and its
    uuid is never used again. Only the ledger entries of the leftovers' intervals are read.
    """
    left = output.leftovers()
    if not left:
        return
    needed = lake.read(lambda snapshot: _needed(snapshot, name, left))
    unneeded = [one for one in left if one.plan not in needed]
    if unneeded:
        output.sweep(unneeded)


def _needed(snapshot: Snapshot, output: str, left: Sequence[Leftover]) -> set[str]:
    """Return the plans of these intervals that the output may still have to publish."""
    needed: set[str] = set()
    for entry in snapshot.around(one.interval for one in left).entries:
        if entry.granted is not None:
            needed.add(keys.plan_parts(entry.granted.plan)[1])
        slot = entry.outputs.get(output)
        needed |= slot.needed if slot is not None else set()
    return needed


@dataclass(slots=True, kw_only=True)
class _PendingIntervals:
    """The pending intervals of an output, cached by ledger page: a backlog has many pages, and a swap changes one."""

    output: str
    pages: dict[str, tuple[tuple[Interval, ...], tuple[Interval, ...]]] = field(
        default_factory=dict
    )

    def in_progress(self, snapshot: Snapshot) -> list[Interval]:
        """Return the intervals whose publication is in progress, by time."""
        return [interval for in_progress, _ in self._pages(snapshot) for interval in in_progress]

    def pending(self, snapshot: Snapshot) -> list[Interval]:
        """Return the pending intervals: first those in progress, then the others, each by time."""
        return [
            *self.in_progress(snapshot),
            *(interval for _, waiting in self._pages(snapshot) for interval in waiting),
        ]

    def _pages(
        self, snapshot: Snapshot
    ) -> Iterable[tuple[tuple[Interval, ...], tuple[Interval, ...]]]:
        # The object of a page key never changes, and `pending` has the keys in order of time.
        self.pages = {
            key: self.pages[key] if key in self.pages else self._read(snapshot, key)
            for key in snapshot.root.pending
        }
        return self.pages.values()

    def _read(
        self, snapshot: Snapshot, key: keys.PageKey
    ) -> tuple[tuple[Interval, ...], tuple[Interval, ...]]:
        entries = [e for e in snapshot.page(key).entries if self.output in e.pending]
        return (
            tuple(e.interval for e in entries if e.outputs[self.output].in_progress is not None),
            tuple(e.interval for e in entries if e.outputs[self.output].in_progress is None),
        )


def _begun(lake: Lake, output: str, interval: Interval) -> bool:
    entry = _entry(lake, interval)
    return entry is not None and entry.outputs[output].in_progress is not None


def _entry(lake: Lake, interval: Interval) -> Entry | None:
    return lake.read(lambda snapshot: snapshot.ledger(interval.start, interval.end).entry(interval))


def publish_one(
    lake: Lake,
    name: str,
    output: Output,
    interval: Interval,
    *,
    rows_of: RowsOf,
    turn: Turn | None = None,
    owing: _PendingIntervals | None = None,
) -> Published | None:
    """Publish the pending rows of one interval to one output; return None if this call published nothing.

    Safe to repeat: the next step is read from the ledger, and the methods of `output` are safe to repeat.
    """
    turn, owing = (
        turn or RoomGiver(store=lake.store, runtime=lake.runtime),
        owing or _PendingIntervals(output=name),
    )
    todo = lake.read(lambda snapshot: _todo(lake, snapshot, name, interval, rows_of))
    if todo is None:
        return None
    try:
        return _publish_sending(lake, output, *todo, turn=turn, owing=owing)
    except Corrupt:
        # C13: another process may have published it meanwhile, and gc deleted the objects that it no longer needs.
        now = lake.read(lambda snapshot: _todo(lake, snapshot, name, interval, rows_of))
        if now is None or now[0] != todo[0]:
            return None
        raise


def _todo(
    lake: Lake, snapshot: Snapshot, name: str, interval: Interval, rows_of: RowsOf
) -> tuple[slots.Start | slots.Resume, Publication] | None:
    entry = snapshot.ledger(interval.start, interval.end).entry(interval)
    slot = entry.outputs.get(name) if entry is not None else None
    if entry is None or slot is None:
        return None
    step = slots.next_step(slot)
    if isinstance(step, slots.Rest):
        return None
    pipeline = snapshot.root.first_name
    return step, publication_of(lake, pipeline, name, entry, step, rows_of=rows_of)


def _publish_sending(
    lake: Lake,
    output: Output,
    step: slots.Start | slots.Resume,
    publication: Publication,
    *,
    turn: Turn,
    owing: _PendingIntervals,
) -> Published | None:
    interval, name = publication.interval, publication.output
    resumed = isinstance(step, slots.Resume)
    if not resumed:
        output.prepare(publication)
        noted = _note(
            lake, interval, name, lambda s: slots.in_progress(s, step.plan), turn=turn, alone=owing
        )
        if noted == "refused":
            # It was replaced, or another publisher has it or another interval in progress: the next read decides.
            output.abort(publication)
            return None
        # Another publisher may have started it, or the reply to this call was lost: rows may be in the output.
        resumed = noted == "there"
    output.publish(publication, resumed=resumed)
    _note(lake, interval, name, lambda s: slots.finished(s, step.plan), turn=turn)
    return Published(
        output=name,
        interval=interval,
        generation=publication.generation,
        plan=step.plan,
        rows=len(publication.rows),
        resumed=resumed,
    )


def _note(
    lake: Lake,
    interval: Interval,
    name: str,
    change: Callable[[OutputSlot], OutputSlot | None],
    *,
    turn: Turn,
    alone: _PendingIntervals | None = None,
) -> Noted:
    """Update one slot by a swap. Return `set` if this call changed it, `there` if it has the new value already.

    Return `refused` if `change` does not apply to the slot in the current ledger. If `alone` is given, return `refused`
    also while another interval of the output is in progress: an output may keep the state of one publication only, and a
    second one would overwrite that of the first. Safe to repeat: the slot shows if it was changed already (C9).
    """

    def step(snapshot: Snapshot) -> Update[Noted] | NoUpdate[Noted]:
        ledger = snapshot.ledger(interval.start, interval.end)
        entry = ledger.entry(interval)
        slot = entry.outputs.get(name) if entry is not None else None
        now = change(slot) if slot is not None else None
        if entry is None or now is None:
            return NoUpdate(value="refused")
        if now == slot:
            return NoUpdate(value="there")
        if alone is not None and any(other != interval for other in alone.in_progress(snapshot)):
            return NoUpdate(value="refused")
        ledger.put(replace(entry, outputs={**entry.outputs, name: now}))
        return Update(
            tables=snapshot.root.tables, topics=snapshot.root.topics, ledger=ledger, value="set"
        )

    return lake.swap(step, turn=turn)


# ---------------------------------------------------------------- publication


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """The rows of one plan for one output."""

    plan: keys.PlanId
    generation: int
    identity: tuple[str, ...]
    rows: Rows
    report: keys.ReportKey | None


def publication_of(
    lake: Lake,
    pipeline: str,
    name: str,
    entry: Entry,
    step: slots.Start | slots.Resume,
    *,
    rows_of: RowsOf,
) -> Publication:
    """Build the publication of a step from the commit records of the interval.

    Raises Corrupt if an object that it needs is gone.
    """
    source = _committed(lake, entry, step.plan, name, rows_of)
    before = None
    if step.instead_of is not None:
        before = _committed(lake, entry, step.instead_of, name, rows_of)
    return _sending(pipeline, name, entry.interval, source, before)


def _sending(
    pipeline: str, name: str, interval: Interval, source: _Source, before: _Source | None
) -> Publication:
    return Publication(
        pipeline=pipeline,
        output=name,
        interval=interval,
        generation=source.generation,
        plan=source.plan,
        identity=source.identity,
        rows=source.rows,
        instead_of=before.plan if before is not None else None,
        generation_before=before.generation if before is not None else None,
        rows_before=before.rows if before is not None else NoRows(),
        report=source.report,
    )


def _committed(
    lake: Lake, entry: Entry, uuid: keys.PlanId, output: str, rows_of: RowsOf
) -> _Source:
    """Return the rows of a plan that was committed for the entry. Raises Corrupt if its objects are gone."""
    # Search the whole chain: a publication in progress is finished first, even if it was replaced many times since.
    commit = next((c for c in lake.commits_of(entry) if keys.plan_parts(c.plan)[1] == uuid), None)
    if commit is None:
        raise Corrupt(
            f"ledger of {lake.store.uri}: expected a commit record of plan {uuid} of {entry.interval}, which an output "
            "has or lacks, found none.",
            hint="nothing was published. Run `tally verify`: the ledger and its records disagree.",
        )
    plan = lake.plan(commit.plan)
    report = lake.report(commit.report) if commit.report is not None else None
    for found, key in ((plan, commit.plan), (report, commit.report)):
        if found is None and key is not None:
            raise Corrupt(
                f"{lake.where(key)} is gone, and output {output} lacks its rows.",
                hint="restore it from a bucket version; nothing was published.",
            )
    assert plan is not None
    return _staged(lake, plan, report, output, rows_of)


def _staged(lake: Lake, plan: Plan, report: Report | None, output: str, rows_of: RowsOf) -> _Source:
    where = f"{lake.where(plan.key)}.spec"
    declared = pipeline_from_spec(plan.spec, where=where)
    table = next((o.table for o in declared.planned_outputs if o.name == output), None)
    files = [f for f in report.files if f.table == table] if report is not None else []
    of_table = declared.table(table) if table is not None else None
    aggregates = of_table is not None and of_table.aggregates
    return _Source(
        plan=keys.plan_parts(plan.key)[1],
        generation=plan.generation,
        identity=tuple(of_table.keys)
        if of_table is not None and aggregates
        else tuple(column.name for column in LINEAGE),
        rows=rows_of(lake.store, files) if files else NoRows(),
        report=report.key if report is not None else None,
    )


def _silent(done: Published) -> None:
    del done
