"""Upkeep is declared for the pipeline or a table: mistakes are refused at once, and no row depends on it."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.small_lake import pipeline
from tallystick import Upkeep
from tallystick.errors import InvalidPipeline
from tallystick.format.types import PRIMITIVES
from tallystick.pipeline import DEAD_LETTERS, Column, Pipeline, Raw, Table, Topic

TIGHT = Upkeep(snapshots_kept=5)


def refused(build: Any) -> str:
    with pytest.raises(InvalidPipeline) as caught:
        build()
    assert caught.value.hint
    return caught.value.message


def test_the_pipeline_has_the_default_and_a_table_its_own() -> None:
    plain = pipeline("memory://lake")
    assert {plain.upkeep_of(name) for name in ("events", DEAD_LETTERS)} == {Upkeep()}
    table = replace(plain.tables[0], upkeep=Upkeep(metadata_kept=3))
    declared = replace(plain, tables=[table, *plain.tables[1:]], upkeep=TIGHT)
    assert declared.upkeep_of("per_kind") == declared.upkeep_of(DEAD_LETTERS) == TIGHT
    # In place of all of the pipeline's: the number of snapshots is the default again.
    assert declared.upkeep_of("events") == Upkeep(metadata_kept=3)


def sorted_by(*names: str, **table: Any) -> Table:
    columns = [Column("n", "long"), Column("at", "timestamptz", required=False)]
    return Table("events", columns=columns, **table, upkeep=Upkeep(sort_by=names))


def test_a_table_is_sorted_by_its_columns_and_by_those_of_the_lineage() -> None:
    sorted_by("at", "n", "_timestamp", "_offset")
    assert "expected sort_by a column, found 'N'" in refused(lambda: sorted_by("N"))
    aggregates = {"keys": ["n"], "combine": {"at": "max"}}
    assert "found '_offset'" in refused(lambda: sorted_by("_offset", **aggregates))


@pytest.mark.parametrize("kind", [*sorted(PRIMITIVES), "decimal(9,2)", "fixed[3]", "list<long>"])
def test_a_column_whose_values_readers_order_in_different_ways_is_refused(kind: str) -> None:
    def build() -> Table:
        column = Column("c", kind, required=False)
        return Table("t", columns=[column], upkeep=Upkeep(sort_by=["c"]))

    if kind in ("float", "double", "uuid", "list<long>"):
        assert f"sort_by 'c' does not apply to a {kind} column" in refused(build)
    else:
        build()


def test_a_pipeline_has_no_sort_order_because_its_tables_have_different_columns() -> None:
    message = refused(lambda: replace(pipeline("memory://lake"), upkeep=Upkeep(sort_by=["n"])))
    assert re.search(r"upkeep: expected no sort_by.*, found n\.", message)


def test_the_columns_to_sort_by_of_a_table_that_follows_are_checked_when_they_are_known() -> None:
    following = Table("raw", topic="raw", upkeep=Upkeep(sort_by=["value"]))
    assert replace(following, columns=[Column("value", "binary")]).upkeep == following.upkeep
    assert "found 'value'" in refused(lambda: replace(following, columns=[Column("v", "binary")]))


def test_upkeep_is_not_in_plans_and_changes_no_fingerprint() -> None:
    plain = pipeline("memory://lake")
    table = replace(plain.tables[0], upkeep=Upkeep(sort_by=["n"], file_size_bytes=1 << 20))
    declared = replace(plain, tables=[table, *plain.tables[1:]], upkeep=TIGHT)
    assert declared.to_spec() == plain.to_spec()
    assert declared.fingerprint(b"job") == plain.fingerprint(b"job")


def test_upkeep_changes_no_fingerprint_of_an_open_pipeline() -> None:
    def opened(upkeep: Upkeep | None) -> Pipeline:
        return Pipeline(
            name="raw",
            topics=[Topic("raw", decode=Raw())],
            warehouse="memory://lake",
            job="spark_jobs/raw.py",
            tables=[Table("raw", topic="raw", upkeep=upkeep)],
        )

    assert opened(None).is_open
    assert opened(TIGHT).fingerprint(b"job") == opened(None).fingerprint(b"job")


@pytest.mark.parametrize(
    "wrong", [timedelta(microseconds=-1), timedelta(microseconds=1), timedelta(days=3650, hours=1)]
)
def test_a_reader_grace_outside_of_its_range_is_refused(wrong: timedelta) -> None:
    for allowed in (timedelta(0), timedelta(days=3650)):
        assert replace(pipeline("memory://lake"), reader_grace=allowed).reader_grace == allowed
    message = refused(lambda: replace(pipeline("memory://lake"), reader_grace=wrong))
    assert message.startswith("reader_grace: expected 0 to 3650 days in whole milliseconds, found")


def test_the_reader_grace_changes_no_fingerprint_and_is_in_no_plan() -> None:
    plain = pipeline("memory://lake")
    declared = replace(plain, reader_grace=timedelta(hours=36))
    assert declared.to_spec() == plain.to_spec()
    assert declared.fingerprint(b"job") == plain.fingerprint(b"job")
