"""The use case `publish`: bring the committed rows that outputs lack to where they belong, and note it. No JVM.

For each output and interval: prepare, note `in_progress` by a swap, publish, note `published` by a swap. Whoever comes
next goes on wherever the last one died: the ledger says what was begun, the output says how far it went.
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
from tallystick.lake.room import Giving, Turn
from tallystick.outputs.port import Leftover, NoRows, Output, Publication, Rows, Scope, Sweeping
from tallystick.pipeline import LINEAGE, pipeline_from_spec
from tallystick.protocol import publishing as slots
from tallystick.store import Store

log = logging.getLogger(__name__)

Watch = Callable[["Published"], None]
Opens = Callable[[], Output]
Noted = Literal["set", "there", "refused"]
# How the rows of a plan's files are read, in their order; tallystick.tables.rows is the real one.
RowsOf = Callable[[Store, Sequence[FileReport]], Rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One interval that an output now holds; `resumed`: an earlier call had begun it."""

    output: str
    interval: Interval
    generation: int
    plan: keys.PlanId
    rows: int
    resumed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NotPublished:
    """One interval that an output still lacks, and why."""

    output: str
    interval: Interval | None
    error: TallystickError


def publish(
    lake: Lake, outputs: Mapping[str, Opens], *, rows_of: RowsOf, watch: Watch | None = None
) -> tuple[NotPublished, ...]:
    """Publish all that the ledger says these outputs lack, by interval; return what could not be.

    `outputs` opens each by its name when its turn has come: one that cannot be opened holds up no other.

    Safe to repeat: what is published is left alone, and what was begun is brought to its end first. An interval that an
    output refuses holds up neither the others nor the other outputs, unless some of its rows may be out there already.
    """
    failed: list[NotPublished] = []
    turn = Giving(store=lake.store, runtime=lake.runtime)
    for name, opens in outputs.items():
        output = None
        try:
            output = opens()
            if lake.read(_PendingIntervals(output=name).pending):
                root = lake.load_existing().root
                output.begin(Scope(lake=lake.store.uri, pipeline=root.pipeline))
                failed += _publish_all(lake, name, output, rows_of, watch or _silent, turn)
            if isinstance(output, Sweeping):
                _sweep(lake, name, output)
        except Exception as error:  # noqa: BLE001 - a user's own output may raise anything, and holds up no other
            failed.append(NotPublished(output=name, interval=None, error=_ours(name, error)))
        finally:
            close(name, output)
    return tuple(failed)


def close(name: str, output: Output | None) -> None:
    """Close an output, if it was opened at all. Safe to repeat: as `Output.close` is."""
    try:
        if output is not None:
            output.close()
    except Exception as error:  # noqa: BLE001 - as above: what was done is noted, and the process ends soon
        log.warning("output %s is not closed: %s: %s", name, type(error).__name__, error)


def _ours(output: str, error: Exception) -> TallystickError:
    if isinstance(error, TallystickError):
        return error
    found = OutputUnavailable(
        f"output {output}: {type(error).__name__}: {error}.",
        hint="it is tried again. If it comes back, mend the output: it raises what is none of tallystick's errors.",
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
            # Another publisher may have begun what could not even be prepared here: nothing is begun beside it.
            return list(failed.values())
        try:
            done = publish_one(lake, name, output, todo, rows_of=rows_of, turn=turn, owing=owing)
        except Exception as error:  # noqa: BLE001 - a user's own output may raise anything
            failed[todo] = NotPublished(output=name, interval=todo, error=_ours(name, error))
            if _begun(lake, name, todo):
                # Some of its rows may be out there: nothing is sent past it before it has come to its end.
                return list(failed.values())
        else:
            if done is not None:
                watch(done)


def _sweep(lake: Lake, name: str, output: Sweeping) -> None:
    """Let the output take away what it prepared for plans that will never be published any more.

    Safe to repeat, and beside whoever prepares: it does so for a plan that the ledger grants or wants, and the ledger
    is read after the look at what is there. A plan that is neither then was superseded, or is out: its uuid never comes
    back. Of the ledger, only the intervals are read of which something was left.
    """
    left = output.leftovers()
    if not left:
        return
    needed = lake.read(lambda snapshot: _needed(snapshot, name, left))
    unneeded = [one for one in left if one.plan not in needed]
    if unneeded:
        output.sweep(unneeded)


def _needed(snapshot: Snapshot, output: str, left: Sequence[Leftover]) -> set[str]:
    """The plans of these intervals that the output may yet be asked to publish."""
    needed: set[str] = set()
    for entry in snapshot.around(one.interval for one in left).entries:
        if entry.granted is not None:
            needed.add(keys.plan_parts(entry.granted.plan)[1])
        slot = entry.outputs.get(output)
        needed |= slot.needed if slot is not None else set()
    return needed


@dataclass(slots=True, kw_only=True)
class _PendingIntervals:
    """What an output lacks, by page of the ledger: a backlog has many pages, and a swap changes one of them."""

    output: str
    pages: dict[str, tuple[tuple[Interval, ...], tuple[Interval, ...]]] = field(
        default_factory=dict
    )

    def in_progress(self, snapshot: Snapshot) -> list[Interval]:
        """The intervals that were begun and are not finished, by time."""
        return [interval for in_progress, _ in self._pages(snapshot) for interval in in_progress]

    def pending(self, snapshot: Snapshot) -> list[Interval]:
        """The intervals that the output lacks: those that were begun first, then by time."""
        return [
            *self.in_progress(snapshot),
            *(interval for _, waiting in self._pages(snapshot) for interval in waiting),
        ]

    def _pages(
        self, snapshot: Snapshot
    ) -> Iterable[tuple[tuple[Interval, ...], tuple[Interval, ...]]]:
        # Pages never change under their keys, and stand in the order of time.
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
    """Do the next step of one output and interval to its end; None where there was none to do any more.

    Safe to repeat: each step is read from the ledger, and `output` makes its own part safe.
    """
    turn, owing = (
        turn or Giving(store=lake.store, runtime=lake.runtime),
        owing or _PendingIntervals(output=name),
    )
    todo = lake.read(lambda snapshot: _todo(lake, snapshot, name, interval, rows_of))
    if todo is None:
        return None
    try:
        return _publish_sending(lake, output, *todo, turn=turn, owing=owing)
    except Corrupt:
        # C13: others have published it meanwhile, and gc has taken what nobody needed any more.
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
    pipeline = snapshot.root.pipeline
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
            # Replaced since, or others publish it, or another interval: the next look says what is to be done.
            output.abort(publication)
            return None
        # Another publisher may have begun it since, or our own reply was lost: rows may be out there.
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
    """Update one slot by a swap: `set` by this call, `there` already, or `refused` as the ledger stands now.

    `alone`: refused also while another interval is begun there. An output need not know more than where the last
    publication stands, and that of the first would be overwritten by the second.
    Safe to repeat: the slot says whether it was changed already (C9).
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


# ---------------------------------------------------------------- what is sent


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
    """What a step sends, read from the records of the interval's commits. Raises Corrupt where one is gone."""
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
    """The rows of a plan that was committed for the entry. Raises Corrupt where its objects are gone."""
    # However often it was replaced since: nothing passes an interval that is begun.
    commit = next((c for c in lake.commits_of(entry) if keys.plan_parts(c.plan)[1] == uuid), None)
    if commit is None:
        raise Corrupt(
            f"the ledger of {lake.store.uri} wants rows of plan {uuid} of {entry.interval} in an output; no record of "
            "its commits names that plan.",
            hint="nothing was sent. Run `tally verify`: the ledger and its records disagree.",
        )
    plan = lake.plan(commit.plan)
    report = lake.report(commit.report) if commit.report is not None else None
    for found, key in ((plan, commit.plan), (report, commit.report)):
        if found is None and key is not None:
            raise Corrupt(
                f"{lake.where(key)} is gone, and output {output} lacks its rows.",
                hint="restore it from a bucket version; nothing was sent.",
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
