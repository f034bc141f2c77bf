"""Columns: their names and types, and the column that an id means after renames and wider types."""

from __future__ import annotations

import pytest

from tallystick.format.columns import (
    PRIMITIVES,
    FormerName,
    TableColumn,
    check_column_name,
    check_columns,
    check_type,
    successor,
    widens,
)


def column(number: int = 1, name: str = "a", kind: str = "int") -> TableColumn:
    return TableColumn(id=number, name=name, type=kind, required=False)


WIDER = [
    ("int", "long"),
    ("float", "double"),
    ("decimal(9,2)", "decimal(10,2)"),
    ("decimal(1,0)", "decimal(38,0)"),
]


@pytest.mark.parametrize(("old", "new"), WIDER)
def test_a_type_widens_in_one_direction(old: str, new: str) -> None:
    assert widens(old, new)
    assert not widens(new, old)
    assert not widens(old, old)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int", "double"),
        ("int", "decimal(38,0)"),
        ("long", "timestamp"),
        ("decimal(9,2)", "decimal(12,3)"),
        ("decimal(9,2)", "double"),
        ("date", "timestamp"),
        ("string", "binary"),
    ],
)
def test_no_other_type_widens(old: str, new: str) -> None:
    assert not widens(old, new)


@pytest.mark.parametrize(
    ("now", "former", "found"),
    [
        ([column()], [], True),
        ([column(kind="long")], [], True),
        ([column(name="b")], [FormerName(id=1, name="a")], True),
        ([column(name="b", kind="long")], [FormerName(id=1, name="a")], True),
        ([column(2)], [], False),
        ([column(name="b")], [], False),
        ([column(name="b")], [FormerName(id=2, name="a")], False),
        ([column(name="b")], [FormerName(id=1, name="c")], False),
        ([column(kind="string")], [], False),
        ([], [], False),
    ],
)
def test_a_column_is_followed_by_its_id(
    now: list[TableColumn], former: list[FormerName], found: bool
) -> None:
    assert successor(column(), now, former) == (now[0] if found else None)


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
