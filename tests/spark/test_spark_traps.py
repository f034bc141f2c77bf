"""The plans that cause a warning, as Spark 4.2 prints them."""

from __future__ import annotations

import pytest

from tallystick.spark.traps import traps_in


@pytest.mark.parametrize(
    ("line", "warning"),
    [
        ("Project [id#0L, rand(2854919205446534565) AS r#2]", "rand() draws other values"),
        ("+- Project [id#0L, randn(3) AS r#3]", "randn() draws other values"),
        ("   +- Project [uuid(Some(-68045)) AS r#4]", "uuid() draws other values"),
        ("Project [randstr(3, 1625, true) AS r#30]", "randstr() draws other values"),
        (
            "Project [uniform(1, 5, 7441, true, Some(Etc/UTC)) AS r#31]",
            "uniform() draws other values",
        ),
        ("Project [shuffle(array(1), Some(-4493)) AS r#15]", "shuffle() draws other values"),
        ("Project [now() AS r#6]", "now() reads the driver's clock"),
        ("Filter (at#3 < current_timestamp())", "current_timestamp() reads the driver's clock"),
        ("Project [current_date(Some(Etc/UTC)) AS r#8]", "current_date() reads"),
        ("Project [localtimestamp(Some(Etc/UTC)) AS r#9]", "localtimestamp() reads"),
        (
            "Project [monotonically_increasing_id() AS r#12L]",
            "monotonically_increasing_id() depends",
        ),
        ("Project [SPARK_PARTITION_ID() AS r#14]", "spark_partition_id() depends"),
        ("Project [input_file_name() AS r#13]", "input_file_name() depends"),
        ("Aggregate [c#1], [c#1, first(id#0L, false) AS f#16L]", "first() depends on the order"),
        ("Aggregate [c#1], [collect_list(id#0L, 0, 0, true)]", "collect_list() depends"),
        (":  +- Repartition 3, true", "Repartition 3, true distributes rows in turns"),
        ("Sample 0.0, 0.5, false, 4339, Bernoulli", "Sample selects other rows"),
    ],
)
def test_a_trap_is_named(line: str, warning: str) -> None:
    [found] = traps_in(f"Project [a#1]\n{line}\n+- Project [b#2]")
    assert found.startswith(warning)


@pytest.mark.parametrize(
    "plan",
    [
        "RepartitionByExpression [id#0L], 3",
        "Repartition 1, false",
        "Project [brand#1, known(brand#1) AS now#2, grand(1) AS rand#3]",
        # A window orders its rows itself.
        "Window [first(id#0L, false) windowspecdefinition(c#1, id#0L ASC NULLS FIRST)]",
        "Aggregate [c#1], [count(1) AS first#2L, max_by(id#0L, at#1) AS last#20L]",
        "Aggregate [c#1], [sort_array(collect_list(id#0L, 0, 0, true), true) AS ids#17]",
        "RelationV2[id#1L, _offset#2L] tallystick",
    ],
)
def test_a_stable_plan_causes_no_warning(plan: str) -> None:
    assert traps_in(plan) == ()


def test_each_trap_is_reported_once() -> None:
    assert len(traps_in("Project [rand(1), rand(2)]\n+- Project [rand(3), now()]")) == 2
