"""Columns: their names and types, and the column that an id means after renames and wider types."""

from __future__ import annotations

import pytest

from tallystick.format.columns import (
    FormerName,
    TableColumn,
    check_column_name,
    check_columns,
    is_part_of,
    successor,
    widens,
    with_parts,
)
from tallystick.format.types import NESTING_MAX, PRIMITIVES, primitive_type


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
    assert successor(column(), now, [], former) == (now[0] if found else None)


@pytest.mark.parametrize(
    "kind", [*sorted(PRIMITIVES), "decimal(38,38)", "decimal(1, 0)", "fixed[16]"]
)
def test_primitive_types_pass(kind: str) -> None:
    assert primitive_type(kind) == kind.replace(" ", "")


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "INT",
        "decimal(39,0)",
        "decimal(2,3)",
        "decimal(0,0)",
        "list<int>",
        "fixed[0]",
        "fixed[x]",
    ],
)
def test_other_types_are_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="expected one of"):
        primitive_type(kind)


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


def nested(kind: str, *fields: TableColumn, required: bool = True) -> TableColumn:
    return TableColumn(id=9, name="c", type=kind, required=required, fields=fields)


@pytest.mark.parametrize(
    ("kind", "fields", "why"),
    [
        ("struct", (), "expected a struct with at least one field, found none"),
        ("struct", (column(1, "a"), column(2, "A")), "unique names .* found 'a' twice"),
        ("list", (column(1, "item"),), "expected the fields element of a list, found item"),
        ("list", (), "expected the fields element of a list, found none"),
        ("map", (column(1, "value"), column(2, "key")), "expected the fields key, value of a map"),
        ("map", (column(1, "key"), column(2, "value")), "a map's key required and of a primitive"),
        ("int", (column(1, "a"),), "expected no fields of type 'int', found a"),
    ],
)
def test_fields_that_do_not_fit_the_type_are_refused(
    kind: str, fields: tuple[TableColumn, ...], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        nested(kind, *fields)


def test_a_column_has_a_limited_number_of_levels() -> None:
    deep = column(1, "a")
    for number in range(2, NESTING_MAX + 2):
        deep = TableColumn(id=number, name="a", type="struct", required=False, fields=(deep,))
    with pytest.raises(ValueError, match=f"at most {NESTING_MAX} levels of nesting"):
        nested("struct", deep)


def test_ids_of_parts_are_unique_too() -> None:
    with pytest.raises(ValueError, match="expected unique column ids"):
        check_columns([column(1), nested("struct", column(1, "b"))])
    parts = [c.id for c in with_parts([column(1), nested("struct", column(2), column(3, "b"))])]
    assert parts == [1, 9, 2, 3]


@pytest.mark.parametrize(
    ("there", "is_part"),
    [
        (nested("struct", column(1), column(2, "b")), True),
        (nested("struct", column(1)), True),
        (nested("struct", column(2)), False),
        (nested("struct", column(1, "b")), False),
        (nested("struct", column(1, kind="long")), False),
        (column(9, "c"), False),
    ],
)
def test_a_planned_column_has_some_of_the_parts_of_the_tables(
    there: TableColumn, is_part: bool
) -> None:
    assert is_part_of(nested("struct", column(1)), there) is is_part


@pytest.mark.parametrize(
    ("now", "dropped", "found"),
    [
        ([nested("struct", column(1))], [], True),
        ([nested("struct", column(1, kind="long"))], [], True),
        ([nested("struct", column(2, "b"))], [column(1)], True),
        ([], [nested("struct", column(1))], True),
        ([nested("struct", column(2, "b"))], [], False),
        ([nested("struct", column(1, "b"))], [], False),
        # A part belongs to its struct: elsewhere the same id would mean another value.
        ([nested("struct", column(2, "b")), column(1)], [], False),
        ([nested("list", column(1, "element"))], [], False),
    ],
)
def test_a_column_is_followed_with_all_its_parts(
    now: list[TableColumn], dropped: list[TableColumn], found: bool
) -> None:
    assert (successor(nested("struct", column(1)), now, dropped, []) is not None) is found
