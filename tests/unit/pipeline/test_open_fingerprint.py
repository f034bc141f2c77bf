"""The fingerprint of an open pipeline: it changes with what determines the rows, and with nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tallystick.pipeline import Avro, Column, Format, Json, Pipeline, Table, Text, Topic, Topics

FOLLOW = Avro(registry="default", schema="follow")
BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
N = Column("n", "long")
RENAMED = Column("m", "long", source="n", renamed_from="k")


def of_topic(table: dict[str, Any] | None = None, **topic: Any) -> str:
    declared = {"name": "orders", "decode": FOLLOW} | topic
    tables = [Table("orders", topic=declared["name"], **(table or {}))]
    return _fingerprint([Topic(**declared)], tables)


def of_pattern(**topics: Any) -> str:
    return _fingerprint([Topics(**({"pattern": "shop.*", "decode": FOLLOW} | topics))], [])


def _fingerprint(topics: list[Any], tables: list[Table]) -> str:
    pipeline = Pipeline(
        name="p", topics=topics, warehouse="memory://lake/p", job="j.py", tables=tables
    )
    return pipeline.fingerprint(b"job")


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "others"},
        {"decode": Avro(registry="other", schema="follow")},
        {"decode": Avro(registry="default", schema="follow", subjects=["a"])},
        {"decode": Avro(registry="default", schema="follow", misfits="stop")},
        {"decode": Avro(registry="default", schema="follow", tombstones="keep")},
        {"decode": Json([N])},
        {"key": Text("k")},
        {"headers": "headers"},
        {"table": {"partition_by": ["day(at)"]}},
    ],
)
def test_it_changes_with_a_topic(changed: dict[str, Any]) -> None:
    assert of_topic(**changed) != of_topic()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"begin": BEGIN}),
        (
            {"decode": Json([RENAMED])},
            {"decode": Json([Column("m", "long", source="n")])},
        ),
        (
            {"decode": Format("other", [N], {"x": 1, "y": 2})},
            {"decode": Format("other", [N], {"y": 2, "x": 1})},
        ),
        ({"decode": Json([N])}, {"decode": Json([N]).format}),
        ({"key": Text("k")}, {"key": Text("k").format}),
        ({"table": {"partition_by": ["day( at )"]}}, {"table": {"partition_by": ["day(at)"]}}),
        ({}, {"table": {"dropped": ["old"]}}),
    ],
)
def test_it_does_not_change_with_another_form_of_a_topic(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    assert of_topic(**first) == of_topic(**second)


@pytest.mark.parametrize(
    "changed",
    [
        {"pattern": "shop[.].*"},
        {"decode": Json([N])},
        {"table": "all_{topic}"},
        {"key": Text("k")},
        {"headers": "headers"},
        {"partition_by": ["day(at)"]},
    ],
)
def test_it_changes_with_a_pattern(changed: dict[str, Any]) -> None:
    assert of_pattern(**changed) != of_pattern()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"begin": BEGIN}),
        ({"partition_by": ["day( at )"]}, {"partition_by": ["day(at)"]}),
        (
            {"decode": Json([RENAMED])},
            {"decode": Json([Column("m", "long", source="n")])},
        ),
    ],
)
def test_it_does_not_change_with_another_form_of_a_pattern(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    assert of_pattern(**first) == of_pattern(**second)
