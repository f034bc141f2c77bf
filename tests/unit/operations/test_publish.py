"""Outputs get each committed row once: after kills, with concurrent publishers, and with replacements meanwhile."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.fake_output import Declared, FakeOutput, Killed, Wire, rows_of
from support.fakes import stage
from support.small_lake import SmallLake, days, pipeline
from tallystick.errors import (
    Corrupt,
    InvalidPipeline,
    InvalidRequest,
    OutputRefused,
    ReportRejected,
)
from tallystick.format import keys
from tallystick.format.outputs import OutputSlot
from tallystick.format.page import Entry
from tallystick.lake import Lake
from tallystick.operations.commit import commit
from tallystick.operations.gc import collect
from tallystick.operations.publish import (
    NotPublished,
    Published,
    publication_of,
    publish,
    publish_one,
)
from tallystick.pipeline import Pipeline
from tallystick.protocol.publishing import Start
from tallystick.tables.reach import IcebergReach
from tallystick.tables.rows import StoredRows

FEED = "feed"


def with_outputs(warehouse: str, *outputs: Declared) -> Pipeline:
    """Return the small pipeline with outputs."""
    return replace(pipeline(warehouse), outputs=outputs or (Declared(),))


def small_lake(*outputs: Declared) -> SmallLake:
    """Return a small lake whose pipeline has outputs."""
    return SmallLake(declared=functools.partial(_declared, outputs))


def _declared(outputs: tuple[Declared, ...], warehouse: str) -> Pipeline:
    return with_outputs(warehouse, *outputs)


def entry_of(small: SmallLake, first: int) -> Entry:
    """Return the entry of one day."""
    interval = days(first, first + 1)
    found = small.lake.load_existing().ledger(interval.start, interval.end).entry(interval)
    assert found is not None
    return found


def slot_of(small: SmallLake, first: int, output: str = FEED) -> OutputSlot:
    """Return the slot of an output for one day."""
    return entry_of(small, first).outputs[output]


def send(small: SmallLake, output: FakeOutput) -> tuple[NotPublished, ...]:
    """Publish all that is pending; return the failures."""
    return publish(small.lake, {FEED: lambda: output}, rows_of=StoredRows)


def table_rows(small: SmallLake, *committed: int) -> list[tuple[Any, ...]]:
    """Return the rows of these days' committed plans, as the output should have them."""
    rows: list[tuple[Any, ...]] = []
    for first in committed:
        entry = entry_of(small, first)
        assert entry.committed is not None
        uuid = keys.plan_parts(entry.committed.plan)[1]
        publication = publication_of(
            small.lake, "small", FEED, entry, Start(plan=uuid, instead_of=None), rows_of=StoredRows
        )
        rows += rows_of(publication)
    return sorted(rows)


def publish_all(
    small: SmallLake, output: FakeOutput
) -> tuple[list[Published], tuple[NotPublished, ...]]:
    """Publish all that is pending; return the publications and the failures."""
    done: list[Published] = []
    return done, publish(small.lake, {FEED: lambda: output}, rows_of=StoredRows, watch=done.append)


# ---------------------------------------------------------------- normal operation


def test_a_commit_is_pending_for_each_output_until_it_is_published() -> None:
    small, wire = small_lake(), Wire()
    small.run(days(1, 2))
    small.run(days(3, 4))
    assert entry_of(small, 1).pending == (FEED,)
    assert small.lake.load_existing().root.outputs == {FEED: "memory:feed"}
    done, failed = publish_all(small, FakeOutput(wire))
    assert not failed
    assert [(d.interval, d.generation, d.resumed) for d in done] == [
        (days(1, 2), 1, False),
        (days(3, 4), 1, False),
    ]
    assert wire.rows() == table_rows(small, 1, 3)
    assert entry_of(small, 1).pending == ()
    assert small.lake.load_existing().root.pending == ()


def test_nothing_is_sent_twice_and_no_publication_begins_if_nothing_is_pending() -> None:
    small, wire = small_lake(), Wire()
    small.run(days(1, 2))
    publish_all(small, FakeOutput(wire))
    version, messages, epoch = (
        small.lake.load_existing().root.version,
        list(wire.messages),
        wire.epoch,
    )
    assert publish_all(small, FakeOutput(wire)) == ([], ())
    assert (small.lake.load_existing().root.version, wire.messages, wire.epoch) == (
        version,
        messages,
        epoch,
    )


def test_an_interval_without_rows_for_an_output_is_published_by_its_commit() -> None:
    small = small_lake()
    small.run(days(5, 6))  # without offsets: committed by its plan
    small.run(days(1, 2), keep=lambda _: False)  # with offsets, and no row
    for first in (1, 5):
        slot = slot_of(small, first)
        assert slot.published == slot.wanted
    assert small.lake.load_existing().root.pending == ()


def test_a_lake_without_outputs_keeps_its_formats() -> None:
    small = SmallLake()
    small.run(days(1, 2))
    assert small.root()["format"] == "tallystick.root/1"
    stored = small.store.get(small.page())
    assert stored is not None
    assert b'"tallystick.page/1"' in stored.body


def test_each_output_is_published_independently() -> None:
    small = small_lake(Declared(), Declared(name="sums", table="per_kind", target="memory:sums"))
    small.run(days(1, 2))
    wires = {FEED: Wire(), "sums": Wire()}
    failed = publish(
        small.lake,
        {
            FEED: lambda: FakeOutput(wires[FEED], refuses=lambda _: True),
            "sums": lambda: FakeOutput(wires["sums"]),
        },
        rows_of=StoredRows,
    )
    assert [(f.output, f.interval) for f in failed] == [(FEED, days(1, 2))]
    assert isinstance(failed[0].error, OutputRefused)
    assert entry_of(small, 1).pending == (FEED,)
    assert len(wires["sums"].rows()) == 2
    assert not wires[FEED].messages


# ---------------------------------------------------------------- replacements


def replaced_lake(*, sent: bool) -> tuple[SmallLake, Wire]:
    """Return a lake whose day 1 was published if `sent`, and then replaced by a job that keeps fewer rows."""
    small, wire = small_lake(), Wire()
    small.run(days(1, 2))
    if sent:
        publish_all(small, FakeOutput(wire))
    small.job = b"version 2"
    small.run(days(1, 2), clear=1, keep=lambda record: record.value["n"] == 0)
    return small, wire


@pytest.mark.parametrize("sent", [True, False])
def test_a_replacement_retracts_exactly_what_was_sent(sent: bool) -> None:
    small, wire = replaced_lake(sent=sent)
    before = len(wire.messages)
    (done,), failed = publish_all(small, FakeOutput(wire))
    assert not failed
    assert done.generation == 2
    assert wire.rows() == table_rows(small, 1)
    assert (before > 0) is sent
    assert {m.sign for m in wire.messages[before:]} == ({1, -1} if sent else {1})


def test_a_publication_in_progress_is_completed_before_its_replacement() -> None:
    small, wire = small_lake(), Wire()
    small.run(days(1, 2))
    with pytest.raises(Killed):
        send(small, FakeOutput(wire, step=killed_at("sent")))
    first = slot_of(small, 1).in_progress
    assert first is not None
    small.job = b"version 2"
    small.run(days(1, 2), clear=1, keep=lambda record: record.value["n"] == 0)
    slot = slot_of(small, 1)
    assert (slot.in_progress, slot.published) == (first, None)
    assert slot.wanted != first
    done, failed = publish_all(small, FakeOutput(wire))
    assert not failed
    assert [(d.generation, d.resumed) for d in done] == [(1, True), (2, False)]
    assert wire.rows() == table_rows(small, 1)
    assert wire.duplicates() == []


@pytest.mark.parametrize("point", ["planned before it was sent", "sent before the plan"])
def test_an_output_that_refuses_replacements_keeps_its_rows(point: str) -> None:
    small, wire = small_lake(Declared(replaced="refuse")), Wire()
    small.run(days(1, 2))
    rows = table_rows(small, 1)
    changed_job = b"version 2"
    if point == "sent before the plan":
        publish_all(small, FakeOutput(wire))
        small.job = changed_job
        with pytest.raises(InvalidRequest, match="is published to output feed"):
            small.plan(days(1, 2), run="scheduled__2013-01-01T00:00:00+00:00", clear=1)
    else:
        small.job = changed_job
        planned = small.plan(days(1, 2), clear=1)
        publish_all(small, FakeOutput(wire))
        report = stage(small.lake, small.log, planned.intervals[0].plan)
        with pytest.raises(ReportRejected, match="is published to output feed"):
            commit(small.lake, small.tables, plan_key=planned.intervals[0].plan, report_key=report)
        assert entry_of(small, 1).granted is None
    assert wire.rows() == rows
    assert entry_of(small, 1).generation == (1 if point == "sent before the plan" else 2)
    assert entry_of(small, 1).pending == ()


def test_an_output_that_refuses_replacements_accepts_one_of_rows_that_were_never_sent() -> None:
    small, wire = small_lake(Declared(replaced="refuse")), Wire()
    small.run(days(1, 2))
    small.job = b"version 2"
    small.run(days(1, 2), clear=1)
    publish_all(small, FakeOutput(wire))
    assert {m.plan for m in wire.messages} == {slot_of(small, 1).wanted}


def test_an_output_that_refuses_replacements_accepts_rows_after_an_empty_generation() -> None:
    """The slot of an interval without rows is published by its commit, although nothing has been sent."""
    small, wire = small_lake(Declared(replaced="refuse")), Wire()
    small.run(days(1, 2), keep=lambda _: False)
    slot = slot_of(small, 1)
    assert slot.published == slot.wanted
    small.job = b"version 2"
    small.run(days(1, 2), clear=1)
    publish_all(small, FakeOutput(wire))
    assert wire.rows() == table_rows(small, 1) != []
    small.job = b"version 3"
    with pytest.raises(InvalidRequest, match="is published to output feed"):
        small.run(days(1, 2), clear=2)


def test_an_output_keeps_its_target_for_ever() -> None:
    small = small_lake()
    small.run(days(1, 2))
    small.declared = functools.partial(_declared, (Declared(target="memory:other"),))
    with pytest.raises(
        InvalidPipeline, match="output feed: expected target memory:feed as in the lake"
    ):
        small.plan(days(2, 3))


def test_an_output_that_is_declared_later_gets_what_is_committed_from_then_on() -> None:
    small, wire = SmallLake(), Wire()
    small.run(days(1, 2))
    small.declared = with_outputs
    small.run(days(2, 3))
    publish_all(small, FakeOutput(wire))
    assert entry_of(small, 1).outputs == {}
    assert wire.rows() == table_rows(small, 2)


# ---------------------------------------------------------------- crashes and concurrent publishers


def killed_at(what: str, nth: int = 1) -> Callable[[str], None]:
    """Return a step that raises Killed at the nth occurrence of `what`."""
    seen = 0

    def step(name: str) -> None:
        nonlocal seen
        seen += name == what
        if seen == nth and name == what:
            raise Killed(f"{what} {nth}")

    return step


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("what", ["begin", "prepare", "send", "sent"])
def test_the_work_of_a_publisher_killed_at_any_step_is_completed_by_the_next(
    what: str, nth: int
) -> None:
    small, wire = small_lake(), Wire()
    small.run(days(1, 2))
    small.run(days(2, 3))
    try:
        send(small, FakeOutput(wire, step=killed_at(what, nth)))
    except Killed:
        died = True
    else:
        died = False
    assert died is (what != "begin" or nth == 1) or (what, nth) == ("prepare", 3)
    _, failed = publish_all(small, FakeOutput(wire))
    assert not failed
    assert wire.rows() == table_rows(small, 1, 2)
    assert wire.duplicates() == []


def test_a_fenced_publisher_sends_nothing_more_and_the_other_completes_its_work() -> None:
    small, wire = small_lake(), Wire()
    small.run(days(1, 2))
    other: list[tuple[NotPublished, ...]] = []

    def step(name: str) -> None:
        if name == "sent" and not other:
            other.append(())
            other[:] = [send(small, FakeOutput(wire))]

    (failed,) = send(small, FakeOutput(wire, step=step))
    assert failed.error.kind == "output_busy"
    assert other == [()]
    assert wire.rows() == table_rows(small, 1)
    assert wire.duplicates() == []
    assert entry_of(small, 1).pending == ()


def test_nothing_is_sent_after_an_interval_that_is_half_published() -> None:
    """The output stores only the place of the last publication: another interval would overwrite it."""
    small, wire = small_lake(), Wire()
    small.run(days(1, 2))
    small.run(days(2, 3))
    with pytest.raises(Killed):
        send(small, FakeOutput(wire, step=killed_at("sent")))
    (key, *_) = small.data_files("events")
    small.store.delete([key])
    _, failed = publish_all(small, FakeOutput(wire))
    assert [(f.interval, type(f.error)) for f in failed] == [(days(1, 2), Corrupt)]
    assert {m.plan for m in wire.messages} == {slot_of(small, 1).in_progress}


def test_no_second_interval_begins_while_another_publisher_has_one_half_published() -> None:
    """The next publisher would find the place of the second, and treat the first as unsent."""
    small, wire = small_lake(), Wire()
    small.run(days(1, 2))
    small.run(days(2, 3))
    first = table_rows(small, 1)[0]
    met: list[str] = []

    def meet(name: str) -> None:
        if name == "prepare" and not met:
            met.append(name)
            # This publisher cannot prepare the first interval, begins the second, and is killed in it.
            other = FakeOutput(wire, step=killed_at("sent"), refuses=lambda row: row == first)
            with pytest.raises(Killed):
                send(small, other)

    (failed,) = send(small, FakeOutput(wire, step=meet))
    assert (failed.interval, failed.error.kind) == (days(2, 3), "output_busy")
    assert [slot_of(small, n).in_progress is not None for n in (1, 2)] == [False, True]
    done, failures = publish_all(small, FakeOutput(wire))
    assert not failures
    assert [d.interval for d in done] == [days(2, 3), days(1, 2)]
    assert wire.rows() == table_rows(small, 1, 2)
    assert wire.duplicates() == []


def test_a_publication_of_another_process_that_cannot_be_prepared_here_is_not_skipped() -> None:
    small, wire = small_lake(), Wire()
    small.run(days(1, 2))
    small.run(days(2, 3))
    first = table_rows(small, 1)[0]
    met: list[str] = []

    def meet(name: str) -> None:
        met.append(name)
        if met.count("prepare") == len(met) - 1 == 2:  # of the second interval
            with pytest.raises(Killed):
                send(small, FakeOutput(wire, step=killed_at("sent")))

    failed = send(small, FakeOutput(wire, step=meet, refuses=lambda row: row == first))
    assert [f.interval for f in failed] == [days(1, 2)]
    assert slot_of(small, 2).published is None
    assert {m.plan for m in wire.messages} == {slot_of(small, 1).in_progress}


def test_a_refused_interval_blocks_no_other() -> None:
    small, wire = small_lake(), Wire()
    small.run(days(1, 2))
    small.run(days(2, 3))
    bad = table_rows(small, 1)[0]
    done, failed = publish_all(small, FakeOutput(wire, refuses=lambda row: row == bad))
    assert [f.interval for f in failed] == [days(1, 2)]
    assert [d.interval for d in done] == [days(2, 3)]
    assert slot_of(small, 1).in_progress is None


def test_rows_that_are_replaced_while_they_are_prepared_are_not_sent() -> None:
    small, wire = small_lake(), Wire()
    small.run(days(1, 2))
    replaced: list[int] = []

    def step(name: str) -> None:
        if name == "prepare" and not replaced:
            replaced.append(1)
            small.job = b"version 2"
            small.run(days(1, 2), clear=1, keep=lambda record: record.value["n"] == 0)

    done, failed = publish_all(small, FakeOutput(wire, step=step))
    assert not failed
    assert [d.generation for d in done] == [2]
    assert {m.plan for m in wire.messages} == {slot_of(small, 1).wanted}
    assert wire.rows() == table_rows(small, 1)


def test_publishing_an_unknown_interval_or_output_does_nothing() -> None:
    small, wire = small_lake(), Wire()
    small.run(days(1, 2))
    output = FakeOutput(wire)
    assert publish_one(small.lake, FEED, output, days(2, 3), rows_of=StoredRows) is None
    assert publish_one(small.lake, "other", output, days(1, 2), rows_of=StoredRows) is None


# ---------------------------------------------------------------- garbage


@pytest.mark.parametrize("in_progress", [True, False])
def test_gc_keeps_the_rows_that_an_output_still_needs(in_progress: bool) -> None:
    """Rows of a replaced plan: they are compared with the new ones, and a publication in progress sends the rest."""
    small, wire = small_lake(), Wire()
    small.run(days(1, 2))
    step = killed_at("sent") if in_progress else lambda _: None
    try:
        send(small, FakeOutput(wire, step=step))
    except Killed:
        assert in_progress
    small.job = b"version 2"
    small.run(days(1, 2), clear=1, keep=lambda record: record.value["n"] == 0)
    swept(small)
    _, failed = publish_all(small, FakeOutput(wire))
    assert not failed
    assert wire.rows() == table_rows(small, 1)
    # Objects that nothing needs any more are deleted; files stay for as long as Iceberg lists their snapshot.
    assert len(small.keys(keys.ATTEMPTS_PREFIX)) == 2
    swept(small)
    assert len(small.keys(keys.ATTEMPTS_PREFIX)) == 1
    assert publish_all(small, FakeOutput(wire)) == ([], ())


def test_an_output_that_is_removed_and_declared_again_gets_the_next_replacement() -> None:
    """The rows that it has are still there for the comparison, although commits without it replaced them."""
    small, wire = small_lake(), Wire()
    small.run(days(1, 2))
    publish_all(small, FakeOutput(wire))
    old = wire.rows()
    with_it, small.declared = small.declared, pipeline
    small.job = b"version 2"
    small.run(days(1, 2), clear=1)
    for _ in range(2):
        swept(small)
    small.declared, small.job = with_it, b"version 3"
    assert publish_all(small, FakeOutput(wire)) == ([], ())
    assert wire.rows() == old
    small.run(days(1, 2), clear=2, keep=lambda record: record.value["n"] == 0)
    _, failed = publish_all(small, FakeOutput(wire))
    assert not failed
    assert wire.rows() == table_rows(small, 1) != old


def swept(small: SmallLake) -> None:
    """Collect all garbage, with no grace for readers."""
    collect(
        Lake(small.store, small.runtime, proven=True),  # a separate process
        IcebergReach(small.store),
        delete=True,
        reader_grace=timedelta(0),
        cancel_after=None,
    )
