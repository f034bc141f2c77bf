"""From one generation to the next: the changes that are sent produce the new rows, always in the same order."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.outputs.changes import Change, changes
from unit.outputs.publications import publication

ROWS = st.lists(
    st.builds(lambda k, n: {"k": k, "n": n}, st.sampled_from("abc"), st.integers(0, 3)),
    max_size=8,
)


def applied(before: list[dict[str, Any]], sent: list[Change]) -> Counter[tuple[Any, ...]]:
    """Return the rows of a receiver that had `before` and applied `sent`, by identity and occurrence."""
    rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    counts: Counter[str] = Counter()
    for row in before:
        rows[row["k"], counts[row["k"]]] = tuple(row.values())
        counts[row["k"]] += 1
    for change in sent:
        place = (*change.identity, change.occurrence)
        row = tuple(change.row.values())
        if change.operation == "row":
            assert place not in rows
            rows[place] = row
        elif change.operation == "correction":
            assert rows[place] != row
            rows[place] = row
        else:
            assert rows.pop(place) == row
    return Counter(rows.values())


def changes_of(before: list[dict[str, Any]] | None, after: list[dict[str, Any]]) -> list[Change]:
    """Return the changes. `before` is None if nothing was published."""
    pub = publication(
        after, generation=2, instead_of=None if before is None else 9, before=before or ()
    )
    return list(changes(pub, pub.identity))


@given(ROWS, ROWS)
def test_a_receiver_that_applies_them_holds_the_new_generation(
    before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> None:
    sent = changes_of(before, after)
    assert applied(before, sent) == Counter(tuple(row.values()) for row in after)
    assert [change.number for change in sent] == list(range(len(sent)))
    assert changes_of(before, after) == sent


@given(ROWS)
def test_a_first_generation_is_its_rows(after: list[dict[str, Any]]) -> None:
    sent = changes_of(None, after)
    assert [change.row for change in sent] == after
    assert {change.operation for change in sent} <= {"row"}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([{"k": "a", "n": 1}], [{"k": "a", "n": 1}], []),
        ([{"k": "a", "n": 1}], [{"k": "a", "n": 2}], [("correction", 0, {"k": "a", "n": 2})]),
        ([{"k": "a", "n": 1}], [], [("retraction", 0, {"k": "a", "n": 1})]),
        ([], [{"k": "a", "n": 1}], [("row", 0, {"k": "a", "n": 1})]),
        # Two rows of one identity are distinguished by their order.
        (
            [{"k": "a", "n": 1}, {"k": "a", "n": 2}],
            [{"k": "a", "n": 1}],
            [("retraction", 1, {"k": "a", "n": 2})],
        ),
        # With an additional column, every row differs.
        ([{"k": "a"}], [{"k": "a", "n": None}], [("correction", 0, {"k": "a", "n": None})]),
    ],
)
def test_each_kind_of_change(
    before: list[dict[str, Any]], after: list[dict[str, Any]], expected: list[tuple[Any, ...]]
) -> None:
    assert [(c.operation, c.row_number, c.row) for c in changes_of(before, after)] == expected


def test_rows_that_are_older_than_an_identity_column_are_null_in_it() -> None:
    old = [{"k": "a", "n": 1}, {"k": "b", "n": 2}]
    new = [{"k": "a", "part": "x", "n": 1}, {"k": "b", "part": None, "n": 2}]
    pub = publication(new, generation=2, instead_of=9, before=old, identity=("k", "part"))
    sent = [(c.operation, c.identity, c.row) for c in changes(pub, pub.identity)]
    assert sent == [
        ("row", ("a", "x"), new[0]),
        ("correction", ("b", None), new[1]),
        ("retraction", ("a", None), old[0]),
    ]
