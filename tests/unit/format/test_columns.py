"""Column ids: assigned once, by the swap of a plan, and never used for another column."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.format.columns import (
    PRIMITIVES,
    DeclaredColumn,
    TableColumn,
    allocate,
    check_column_name,
    check_columns,
    check_type,
)


def want(name: str, kind: str = "int", *, required: bool = False) -> DeclaredColumn:
    return DeclaredColumn(name=name, type=kind, required=required)


wanted_lists = st.lists(
    st.lists(st.sampled_from("abcdef"), unique=True, min_size=1).map(
        lambda names: [want(n) for n in names]
    ),
    min_size=1,
    max_size=5,
)


@given(wanted_lists)
def test_an_id_means_one_column_for_ever(declarations: list[list[DeclaredColumn]]) -> None:
    known: tuple[TableColumn, ...] = ()
    meaning: dict[int, tuple[str, str]] = {}
    for declared in declarations:
        known = allocate(known, declared, has_rows=True)
        for column in known:
            assert meaning.setdefault(column.id, (column.name, column.type)) == (
                column.name,
                column.type,
            )
        assert {w.name for w in declared} <= {c.name for c in known}
        assert set(meaning) == {c.id for c in known}


def test_a_dropped_column_stays_and_gets_its_id_back() -> None:
    first = allocate((), [want("a", required=False), want("b")], has_rows=False)
    second = allocate(first, [want("a")], has_rows=True)
    assert second == first
    assert allocate(second, [want("b"), want("a")], has_rows=True) == first


def test_required_is_relaxed_and_never_tightened() -> None:
    first = allocate((), [want("a", required=True)], has_rows=False)
    assert first[0].required
    relaxed = allocate(first, [want("a")], has_rows=True)
    assert not relaxed[0].required
    assert not allocate(relaxed, [want("a", required=True)], has_rows=True)[0].required


@pytest.mark.parametrize(
    ("declared", "has_rows", "why"),
    [
        ([want("b")], True, "'a' is required in the lake but no longer declared"),
        (
            [want("a", "long", required=True)],
            True,
            "'a': expected a int as in the lake, found a long",
        ),
        ([want("A", required=True)], True, "'a': expected a int as in the lake, found A int"),
        ([want("a", required=True), want("b", required=True)], True, "new in a table with rows"),
    ],
)
def test_a_declaration_that_does_not_fit_the_columns_is_refused(
    declared: list[DeclaredColumn], has_rows: bool, why: str
) -> None:
    known = allocate((), [want("a", required=True)], has_rows=False)
    with pytest.raises(ValueError, match=why):
        allocate(known, declared, has_rows=has_rows)


@pytest.mark.parametrize("kind", [*sorted(PRIMITIVES), "decimal(38,38)", "decimal(1, 0)"])
def test_primitive_types_pass(kind: str) -> None:
    assert check_type(kind) == kind.replace(" ", "")


@pytest.mark.parametrize(
    "kind", ["", "INT", "decimal(39,0)", "decimal(2,3)", "decimal(0,0)", "list<int>", "uuid"]
)
def test_other_types_are_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="expected one of"):
        check_type(kind)


@pytest.mark.parametrize("name", ["", "1a", "a b", "a.b", "ä", "a" * 129])
def test_invalid_column_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="expected 1 to 128"):
        check_column_name(name)


@pytest.mark.parametrize("name", ["_partition", "_file", "_POS", "_commit_snapshot_id"])
def test_names_that_iceberg_reserves_are_refused(name: str) -> None:
    with pytest.raises(
        ValueError, match=rf"expected none that Iceberg reserves \(_file, _pos.*, found '{name}'"
    ):
        check_column_name(name)


@pytest.mark.parametrize(
    ("number", "kind", "why"),
    [(0, "int", "expected a column id"), (1, "decimal(1, 0)", "expected 'decimal\\(1,0\\)'")],
)
def test_an_inconsistent_column_is_refused(number: int, kind: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        TableColumn(id=number, name="a", type=kind, required=True)


def test_column_names_are_unique_regardless_of_case() -> None:
    columns = [
        TableColumn(id=i, name=n, type="int", required=True) for i, n in ((1, "a"), (2, "A"))
    ]
    with pytest.raises(ValueError, match="expected unique column names"):
        check_columns(columns)
