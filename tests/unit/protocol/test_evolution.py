"""What a declaration makes of a table: ids keep their meaning, types only widen, and nothing is dropped by accident."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.format.columns import FormerName, TableColumn, successor, with_parts
from tallystick.format.partition_rules import PartitionField
from tallystick.format.root import RootTable
from tallystick.format.upkeep import Upkeep
from tallystick.protocol.evolution import (
    DeclaredColumn,
    DeclaredTable,
    EvolvedTable,
    TableRefused,
    evolve,
)

UUID = "0" * 32
METADATA = "tables/t/metadata/00000-x.metadata.json"


def want(
    name: str, kind: str = "int", *, required: bool = False, renamed_from: str | None = None
) -> DeclaredColumn:
    return DeclaredColumn(name=name, type=kind, required=required, renamed_from=renamed_from)


def table(*columns: DeclaredColumn, by: tuple[str, ...] = (), dropped: Any = ()) -> DeclaredTable:
    return DeclaredTable(columns=columns, partition_by=by, dropped=tuple(dropped))


def after(
    known: RootTable | None, declared: DeclaredTable, *, has_rows: bool = True
) -> tuple[RootTable, EvolvedTable]:
    found = evolve(known, declared)
    assert isinstance(found, EvolvedTable), found
    root_table = RootTable(
        uuid=UUID,
        metadata=METADATA if has_rows else None,
        columns=found.columns,
        partition_by=declared.partition_by,
        dropped=found.dropped,
        former_names=found.former_names,
        partition_fields=found.partition_fields,
    )
    return root_table, found


def lake(*columns: DeclaredColumn, by: tuple[str, ...] = ()) -> RootTable:
    return after(None, table(*columns, by=by))[0]


def refused(known: RootTable | None, declared: DeclaredTable) -> TableRefused:
    found = evolve(known, declared)
    assert isinstance(found, TableRefused), found
    return found


# ---------------------------------------------------------------- new and undeclared columns


def test_a_new_table_gets_its_ids_in_order_and_logs_no_change() -> None:
    made, found = after(None, table(want("a", required=True), want("b", "string")))
    assert made.columns == (
        TableColumn(id=1, name="a", type="int", required=True),
        TableColumn(id=2, name="b", type="string", required=False),
    )
    assert (found.changes, found.left) == ((), ())


def test_an_undeclared_column_stays_and_gets_its_id_back() -> None:
    first = lake(want("a"), want("b"))
    second, found = after(first, table(want("a")))
    assert (second.columns, found.left) == (first.columns, ("b",))
    assert after(second, table(want("b"), want("a")))[0] == first


def test_required_is_relaxed_and_never_tightened() -> None:
    first = lake(want("a", required=True))
    relaxed, found = after(first, table(want("a")))
    assert (relaxed.columns[0].required, found.changes) == (False, ("column 'a' becomes optional",))
    assert after(relaxed, table(want("a", required=True)))[0] == relaxed


def test_a_table_without_rows_takes_a_required_column() -> None:
    empty, _ = after(None, table(want("a")), has_rows=False)
    made, found = after(empty, table(want("a"), want("b", required=True)))
    assert (made.columns[1].required, found.changes) == (True, ("column 'b' is added",))


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ([want("b")], "'a' is required in the lake but no longer declared"),
        ([want("a", "string")], "'a': expected a int as in the lake, found a string"),
        ([want("A")], "'a': expected a int as in the lake, found A int"),
        ([want("a"), want("b", required=True)], "'b' is new in a table with rows"),
        ([want("a"), want("c", renamed_from="x")], "expected renamed_from a column of the lake"),
        (
            [want("a"), want("b", renamed_from="a")],
            "expected one declaration of it, found 'a' and 'b'",
        ),
        ([want("b", "string", renamed_from="a")], "expected a int as in the lake, found b string"),
    ],
)
def test_a_declaration_that_the_table_cannot_follow_is_refused(
    declared: list[DeclaredColumn], why: str
) -> None:
    problem = refused(lake(want("a", required=True)), table(*declared))
    assert why in problem.problem
    assert problem.hint.endswith(".")


# ---------------------------------------------------------------- wider types


@pytest.mark.parametrize(
    ("old", "new"),
    [("int", "long"), ("float", "double"), ("decimal(9,2)", "decimal(11,2)")],
)
def test_a_type_widens_once_and_never_narrows(old: str, new: str) -> None:
    first = lake(want("a", old), want("b"))
    wide, found = after(first, table(want("a", new), want("b")))
    assert wide.columns[0] == replace(first.columns[0], type=new)
    assert found.changes == (f"column 'a' is widened from {old} to {new}",)
    assert after(wide, table(want("a", new), want("b")))[1].changes == ()
    back = refused(wide, table(want("a", old), want("b")))
    assert f"expected a {new} as in the lake, found a {old}" in back.problem


# ---------------------------------------------------------------- renames


def test_a_renamed_column_keeps_its_id_once() -> None:
    first = lake(want("a", required=True), want("b"))
    declared = table(want("c", "long", required=True, renamed_from="a"), want("b"))
    renamed, found = after(first, declared)
    assert renamed.columns == (
        TableColumn(id=1, name="c", type="long", required=True),
        first.columns[1],
    )
    assert renamed.former_names == (FormerName(id=1, name="a"),)
    assert found.changes == (
        "column 'a' is renamed to 'c'",
        "column 'c' is widened from int to long",
    )
    again, unchanged = after(renamed, declared)
    assert (again, unchanged.changes) == (renamed, ())
    without = table(want("c", "long", required=True), want("b"))
    assert after(renamed, without)[0] == renamed


def test_a_rename_changes_only_the_case() -> None:
    renamed, _ = after(lake(want("a")), table(want("A", renamed_from="a")))
    assert [(c.id, c.name) for c in renamed.columns] == [(1, "A")]


def test_a_declaration_from_before_the_rename_is_refused() -> None:
    """Otherwise a late copy of the old code would add a second column and write there."""
    renamed, _ = after(lake(want("a")), table(want("b", renamed_from="a")))
    problem = refused(renamed, table(want("a")))
    assert problem.problem == "column 'a' was renamed to 'b' in the lake"
    assert "renamed_from='b'" in problem.hint
    back, _ = after(renamed, table(want("a", renamed_from="b")))
    assert [(c.id, c.name) for c in back.columns] == [(1, "a")]
    forth, _ = after(back, table(want("b", renamed_from="a")))
    assert forth.former_names == (FormerName(id=1, name="a"), FormerName(id=1, name="b"))


def test_the_old_name_is_free_for_a_new_column() -> None:
    renamed, _ = after(lake(want("a")), table(want("b", renamed_from="a")))
    both, found = after(renamed, table(want("b"), want("a", "string")))
    assert [(c.id, c.name, c.type) for c in both.columns] == [(1, "b", "int"), (2, "a", "string")]
    assert found.changes == ("column 'a' is added",)
    # The declaration of the rename may be deployed once more: the rename is done, and the new column stays.
    assert after(both, table(want("b", renamed_from="a")))[0] == both


def test_a_rename_to_a_column_that_is_there_is_refused() -> None:
    problem = refused(lake(want("a"), want("b")), table(want("b", renamed_from="a")))
    assert "to rename 'a' to, found both" in problem.problem


# ---------------------------------------------------------------- drops


@pytest.mark.parametrize("required", [False, True])
def test_a_dropped_column_leaves_and_its_id_is_not_used_again(required: bool) -> None:
    first = lake(want("a"), want("b", required=required))
    second, found = after(first, table(want("a"), dropped=["B"]))
    assert (second.columns, second.dropped) == (first.columns[:1], first.columns[1:])
    assert found.changes == ("column 'b' is dropped",)
    assert after(second, table(want("a"), dropped=["B"]))[0] == second
    again, _ = after(second, table(want("a"), want("b", "string")))
    assert [(c.id, c.name) for c in again.columns] == [(1, "a"), (3, "b")]
    assert again.dropped == second.dropped


@pytest.mark.parametrize("rule", ["b", "bucket(4, b)"])
def test_a_column_that_partitions_files_is_not_dropped(rule: str) -> None:
    first = lake(want("a"), want("b"), by=(rule,))
    unpartitioned, _ = after(first, table(want("a"), want("b")))
    problem = refused(unpartitioned, table(want("a"), dropped=["b"]))
    assert "'b' cannot be dropped: files of the table are partitioned by it" in problem.problem


# ---------------------------------------------------------------- partitioning


def test_fields_of_all_rules_are_kept_with_their_names() -> None:
    first = lake(want("a"), want("b"), by=("bucket(4, a)",))
    assert first.partition_fields == (
        PartitionField(source_id=1, transform="bucket[4]", name="a_bucket_4"),
    )
    second, found = after(first, table(want("a"), want("b"), by=("b", "bucket(8, a)")))
    assert found.changes == ("new files are partitioned by b, bucket(8, a)",)
    assert [f.name for f in second.partition_fields] == ["a_bucket_4", "b", "a_bucket_8"]
    renamed, _ = after(second, table(want("c", renamed_from="a"), want("b"), by=("bucket(4, c)",)))
    assert renamed.partition_fields == second.partition_fields
    none, found = after(second, table(want("a"), want("b")))
    assert found.changes == ("new files are partitioned by nothing",)
    assert none.partition_fields == second.partition_fields


def test_a_column_has_no_name_of_another_columns_partition_field() -> None:
    known = lake(want("a"), want("b"), by=("bucket(4, a)", "b"))
    derived = refused(known, table(want("a"), want("b"), want("A_bucket_4")))
    assert derived.problem.endswith("found 'A_bucket_4'")
    moved, _ = after(known, table(want("a"), want("c", renamed_from="b")))
    plain = refused(moved, table(want("a"), want("c"), want("b", "string")))
    assert plain.problem.endswith("found 'b'")


def test_two_fields_have_no_common_name() -> None:
    known = lake(want("a"), want("b"), by=("b",))
    moved, _ = after(known, table(want("a"), want("c", renamed_from="b")))
    crossed = refused(moved, table(want("b", renamed_from="a"), want("c"), by=("b",)))
    assert crossed.problem.endswith("found 'b'")


# ---------------------------------------------------------------- any order of declarations

NAMES = st.sampled_from("abcde")
DECLARED = st.lists(
    st.tuples(NAMES, st.sampled_from(["int", "long"]), st.none() | NAMES),
    unique_by=lambda one: one[0],
    min_size=1,
    max_size=4,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(DECLARED, st.lists(NAMES, max_size=2)), min_size=1, max_size=8))
def test_an_id_means_one_column_in_every_history(steps: list[Any]) -> None:
    known: RootTable | None = None
    for columns, dropped in steps:
        wanted = [want(n, k, renamed_from=None if o == n else o) for n, k, o in columns]
        found = evolve(known, table(*wanted, dropped=dropped))
        if isinstance(found, TableRefused):
            continue
        was = known
        known, _ = after(known, table(*wanted, dropped=dropped))
        present = {c.name: c for c in known.columns}
        assert {w.name for w in wanted} <= present.keys()
        assert all(present[w.name].type == w.type for w in wanted)
        if was is None:
            continue
        assert all(
            successor(c, known.columns, known.dropped, known.former_names) for c in was.columns
        )
        assert set(was.dropped) <= set(known.dropped)
        old = {c.id for c in (*was.columns, *was.dropped)}
        assert all(c.id > max(old) for c in known.columns if c.id not in old)


# ---------------------------------------------------------------- fields of structs, lists and maps


def part(name: str, kind: str, *fields: DeclaredColumn, **options: Any) -> DeclaredColumn:
    return DeclaredColumn(
        name=name, type=kind, fields=fields, required=options.pop("required", False), **options
    )


def device(*fields: DeclaredColumn) -> DeclaredTable:
    return table(want("a"), part("device", "struct", *fields))


def items(*fields: DeclaredColumn, key: str = "string") -> DeclaredTable:
    """Declare a map of lists of structs: each level has a place of its own in messages."""
    element = part("element", "struct", *fields, required=True)
    value = part("value", "list", element)
    return table(part("items", "map", part("key", key, required=True), value))


def test_each_part_of_a_column_has_an_id_that_no_other_has() -> None:
    known, _ = after(None, items(want("sku"), want("n")))
    (column,) = known.columns
    key, value = column.fields
    (element,) = value.fields
    assert [column.id, key.id, value.id, element.id] == [1, 2, 3, 4]
    assert [f.id for f in element.fields] == [5, 6]
    later, found = after(known, items(want("sku"), want("n"), want("price", "double")))
    assert later.columns[0].fields[1].fields[0].fields[2].id == 7
    assert found.changes == ("column 'items.value.element.price' is added",)


def test_fields_of_a_struct_evolve_as_columns_do() -> None:
    known, _ = after(None, device(want("os", "string", required=True), want("n"), want("x")))
    declared = table(
        want("a"),
        part(
            "device",
            "struct",
            want("system", "string", renamed_from="os"),
            want("n", "long"),
            want("new", "date"),
        ),
        dropped=["device.x"],
    )
    later, found = after(known, declared)
    fields = later.columns[1].fields
    assert [(f.id, f.name, f.type, f.required) for f in fields] == [
        (3, "system", "string", False),
        (4, "n", "long", False),
        (6, "new", "date", False),
    ]
    assert [(c.id, c.name) for c in later.dropped] == [(5, "x")]
    assert later.former_names == (FormerName(id=3, name="os"),)
    assert found.changes == (
        "column 'device.x' is dropped",
        "column 'device.os' is renamed to 'device.system'",
        "column 'device.system' becomes optional",
        "column 'device.n' is widened from int to long",
        "column 'device.new' is added",
    )
    # The declaration from before the rename is refused, and one without the drop keeps the id for ever.
    old = refused(later, device(want("os", "string"), want("n", "long"), want("new", "date")))
    assert old.problem == "column 'device.os' was renamed to 'system' in the lake"
    again, _ = after(later, device(want("system", "string"), want("n", "long"), want("x")))
    assert [(f.id, f.name) for f in again.columns[1].fields][-1] == (7, "x")


AS_IN_LAKE = "expected items map<int, optional list<struct<sku: optional int>>> as in the lake"


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        (
            items(want("sku", "string"), key="int"),
            "column 'items.value.element.sku': expected sku int as in the lake, found sku string",
        ),
        (
            items(want("sku"), want("new", required=True), key="int"),
            "column 'items.value.element.new' is new in a table with rows and declared as required",
        ),
        (
            items(want("sku"), want("x", renamed_from="sku"), key="int"),
            "column 'items.value.element.sku': expected one declaration of it, found 'sku' and 'x'",
        ),
        # The type of a key never changes, also if it only widens: equal keys would differ.
        (items(want("sku"), key="long"), f"column 'items': {AS_IN_LAKE}"),
        (table(part("items", "list", want("element"))), f"column 'items': {AS_IN_LAKE}"),
        (table(want("items", "string")), f"column 'items': {AS_IN_LAKE}, found items string"),
    ],
)
def test_a_change_of_a_part_that_is_not_allowed_is_refused_with_its_place(
    declared: DeclaredTable, problem: str
) -> None:
    known, _ = after(None, items(want("sku"), key="int"))
    assert refused(known, declared).problem.startswith(problem)


def test_a_required_field_that_is_no_longer_declared_is_refused_and_an_optional_one_is_left() -> (
    None
):
    known, _ = after(None, device(want("os", required=True), want("n")))
    assert refused(known, device(want("n"))).problem == (
        "column 'device.os' is required in the lake but no longer declared"
    )
    later, found = after(known, device(want("os", required=True)))
    assert (found.left, later.columns) == (("device.n",), known.columns)


def test_a_struct_that_is_dropped_takes_its_fields_with_it() -> None:
    known, _ = after(None, device(want("os"), want("n")))
    later, _ = after(known, table(want("a"), dropped=["device"]))
    assert [c.id for c in later.columns] == [1]
    assert [c.id for c in later.dropped] == [2]
    again, _ = after(later, device(want("os")))
    assert [again.columns[1].id, again.columns[1].fields[0].id] == [5, 6]


def shape(depth: int) -> st.SearchStrategy[tuple[Any, ...]]:
    """Draw the fields of a struct as (name, type or fields, earlier name, in a list)."""
    kinds: Any = st.sampled_from(["int", "long"])
    if depth:
        kinds = st.one_of(kinds, shape(depth - 1))
    field = st.tuples(NAMES, kinds, st.none() | NAMES, st.booleans())
    return st.lists(field, unique_by=lambda one: one[0], min_size=1, max_size=3).map(tuple)


def declared_fields(fields: tuple[Any, ...]) -> tuple[DeclaredColumn, ...]:
    out = []
    names = {name for name, *_ in fields}
    for name, kind, old, in_list in fields:
        earlier = None if old in names else old  # a pipeline refuses both when it is declared
        if isinstance(kind, str):
            out.append(want(name, kind, renamed_from=earlier))
            continue
        inner = declared_fields(kind)
        if in_list:
            element = part("element", "struct", *inner)
            out.append(part(name, "list", element, renamed_from=earlier))
        else:
            out.append(part(name, "struct", *inner, renamed_from=earlier))
    return tuple(out)


PATHS = st.lists(st.lists(NAMES, min_size=1, max_size=3).map(".".join), max_size=4)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(shape(2), PATHS), min_size=1, max_size=8))
def test_an_id_of_a_part_means_one_field_in_every_history(steps: list[Any]) -> None:
    known: RootTable | None = None
    ever: set[int] = set()
    for fields, dropped in steps:
        declared = table(*declared_fields(fields), dropped=dropped)
        if isinstance(evolve(known, declared), TableRefused):
            continue
        was = known
        known, _ = after(known, declared)
        ids = [c.id for c in with_parts((*known.columns, *known.dropped))]
        assert len(set(ids)) == len(ids)
        assert ever <= set(ids), "an id is never forgotten"
        assert all(number > max(ever, default=0) for number in set(ids) - ever)
        ever |= set(ids)
        if was is not None:
            now, gone, former = known.columns, known.dropped, known.former_names
            assert all(successor(c, now, gone, former) is not None for c in was.columns)
        # The same declaration again changes nothing: a second plan at the same time finds the columns of the first.
        again, found = after(known, declared)
        assert (again.columns, found.changes) == (known.columns, ())


def test_a_changed_upkeep_is_a_change_and_that_of_a_new_table_is_none() -> None:
    declared = table(want("n"))
    tidy = replace(declared, upkeep=Upkeep(snapshots_kept=5, sort_by=["n"]))
    first = lake(want("n"))
    changed = evolve(first, tidy)
    assert isinstance(changed, EvolvedTable)
    assert changed.changes == (
        "snapshots_kept changes from 50 to 5",
        "sort_by changes from nothing to n",
    )
    assert changed.columns == first.columns
    new = evolve(None, tidy)
    assert isinstance(new, EvolvedTable)
    assert new.changes == ()
