"""Partition rules: one form of text per rule, Iceberg's notation, and names of fields that no other rule has."""

from __future__ import annotations

import pytest

from tallystick.format.partition_rules import PartitionField, PartitionRule, partition_rule


@pytest.mark.parametrize(
    ("text", "transform", "column", "written", "field"),
    [
        ("place", "identity", "place", "place", "place"),
        (" day( at ) ", "day", "at", "day(at)", "at_day"),
        ("bucket(16,tail)", "bucket[16]", "tail", "bucket(16, tail)", "tail_bucket_16"),
        ("truncate( 04, tail )", "truncate[4]", "tail", "truncate(4, tail)", "tail_trunc_4"),
        ("day", "identity", "day", "day", "day"),
    ],
)
def test_a_rule_is_parsed(text: str, transform: str, column: str, written: str, field: str) -> None:
    rule = partition_rule(text)
    assert rule == PartitionRule(transform=transform, column=column)
    assert (str(rule), rule.field_name) == (written, field)
    assert partition_rule(str(rule)) == rule


@pytest.mark.parametrize(
    "text",
    ["", "day(at", "bucket(at)", "bucket(-1, at)", "week(at)", "day(ä)", "a, b", "day(a, 1)"],
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a column, or year"):
        partition_rule(text)


@pytest.mark.parametrize("size", ["0", "2147483648"])
def test_a_number_out_of_range_is_refused(size: str) -> None:
    with pytest.raises(ValueError, match="expected a number from 1 to 2147483647"):
        partition_rule(f"bucket({size}, at)")


def test_a_field_is_stored_as_a_list() -> None:
    field = PartitionField(source_id=2, transform="day", name="at_day")
    assert field.to_json() == [2, "day", "at_day"]
    assert PartitionField.from_json([2, "day", "at_day"], "here") == field
