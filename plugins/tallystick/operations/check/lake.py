"""The findings on the warehouse: the bucket answers, the lake in it belongs to the pipeline, and takes its columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tallystick.errors import SchemaChanged, TallystickError, listed
from tallystick.format import keys
from tallystick.format.root import RootTable
from tallystick.lake import Lake
from tallystick.operations.check.finding import (
    Checked,
    not_checked,
    of_error,
    ok,
    problems,
    warning,
)
from tallystick.operations.plan.tables import evolved_table
from tallystick.pipeline import Pipeline
from tallystick.store.probe import prove_conditional_writes

WAREHOUSE, WRITES, LAKE = "warehouse", "writes", "lake"


def lake_findings(lake: Lake, pipeline: Pipeline, *, probe: bool) -> Iterator[Checked]:
    """Yield the findings on the pipeline's lake. Only if `probe`, scratch objects are written, and deleted again.

    Safe to repeat: the scratch objects have fresh keys, and no key of the lake is written.
    """
    try:
        next(iter(lake.store.list("")), None)
        snapshot = lake.load()
        if snapshot is None:
            lake.check_no_leftovers()
    except TallystickError as error:
        yield of_error(WAREHOUSE, error)
        yield not_checked(WRITES, "the warehouse cannot be read")
        yield not_checked(LAKE, "the warehouse cannot be read")
        return
    yield ok(WAREHOUSE, f"{lake.store.uri} can be read and listed")
    yield _writes(lake, probe=probe)
    if snapshot is None:
        yield ok(LAKE, "new: nothing has been planned there yet")
        return
    try:
        lake.check_owner(snapshot, pipeline.name, renamed_from=pipeline.renamed_from)
    except TallystickError as error:
        yield of_error(LAKE, error)
        return
    found = list(_columns(pipeline, snapshot.root.tables))
    yield from found
    if not problems(found):
        yield ok(LAKE, f"version {snapshot.root.version} takes the declared columns")
    gone = sorted(
        {keys.kafka_topic(n) for n, t in snapshot.root.topics.items() if t.closed is None}
        - {t.name for t in pipeline.inputs}
    )
    if gone:
        yield Checked(
            check=LAKE,
            state="FAIL",
            text=f"topic {gone[0]!r} is in the ledger and no longer in the pipeline",
            hint="declare it again: a topic cannot be removed from a ledger.",
            kind="invalid_pipeline",
        )


def _writes(lake: Lake, *, probe: bool) -> Checked:
    if not probe:
        return not_checked(WRITES, "writes nothing without --probe")
    try:
        proven = prove_conditional_writes(lake.store, scratch=keys.probe(lake.runtime.uuid()))
    except TallystickError as error:
        return of_error(WRITES, error)
    left = f"; {proven.scratch} could not be deleted" if proven.scratch_left else ""
    return ok(WRITES, f"conditional writes work{left}")


def _columns(pipeline: Pipeline, tables: Mapping[str, RootTable]) -> Iterator[Checked]:
    """Yield what a plan would change or refuse in each table, and columns that are not declared any more."""
    for name in pipeline.written_columns():
        known = tables.get(name)
        try:
            table = evolved_table(known, pipeline, name)
        except SchemaChanged as error:
            yield of_error(LAKE, error)
            continue
        if table.changes:
            yield ok(LAKE, f"the next plan changes table {name}: {'; '.join(table.changes)}")
        if table.left:
            yield warning(
                LAKE,
                f"table {name}: {listed(table.left)} of the lake is not declared, so it is null in new rows",
                "declare it again if readers need it; if it has another name now, declare that with renamed_from=...; or "
                "name it in dropped=[...] of the Table to remove it.",
            )
