"""Findings on time: records out of order, how many runs a schedule starts, and the schedule that a new DAG gets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from tallystick.operations.check.records import LATE_MS, _order
from tallystick.operations.check.schedule import (
    RUNS_BOUNDED_MAX,
    RUNS_EXPECTED_MAX,
    DeclaredDag,
    schedule_finding,
)
from tallystick.operations.sample.records import Sample
from tallystick.operations.sample.template import RUNS_EXPECTED_MAX as RUNS_NEW_MAX
from tallystick.operations.sample.template import fitting_schedule
from tallystick.pipeline import Column, Pipeline, Table

HOUR = LATE_MS


def sample(*batches: list[int], from_kafka: bool = True) -> Sample:
    """Return a sample of one partition, its batches as timestamps in milliseconds."""
    return Sample(
        topic="t",
        partition=0,
        batches=tuple(
            pa.record_batch({"timestamp": pa.array(b, pa.timestamp("ms", tz="UTC"))})
            for b in batches
        ),
        from_kafka=from_kafka,
    )


@pytest.mark.parametrize(
    ("samples", "late"),
    [
        ([sample([0, HOUR, 2 * HOUR])], None),
        ([sample([HOUR, 0])], None),
        ([sample([HOUR + 1, 0])], "1 of 2 records"),
        ([sample([3 * HOUR], [HOUR, 2 * HOUR, 0, 4 * HOUR])], "2 of 5 records"),
        ([sample([9 * HOUR]), sample([0])], None),
        ([sample([9 * HOUR, 0], from_kafka=False)], None),
        ([], None),
    ],
)
def test_records_far_behind_an_earlier_one_of_their_partition_are_a_warning(
    samples: list[Sample], late: str | None
) -> None:
    found = list(_order(samples))
    assert [one.state for one in found] == ([] if late is None else ["warning"])
    if late is not None:
        assert found[0].text.startswith(f"{late} have a timestamp more than an hour before")


PIPELINE = Pipeline(
    name="p",
    topics=["t"],
    warehouse="s3://lake/p",
    job="spark_jobs/p.py",
    tables=[Table("p", columns=[Column("n", "long")])],
)


@pytest.mark.parametrize(
    ("due", "bounded", "catchup", "state"),
    [
        (RUNS_EXPECTED_MAX, False, True, "ok"),
        (RUNS_EXPECTED_MAX + 1, False, True, "warning"),
        (RUNS_EXPECTED_MAX + 1, True, True, "ok"),
        (RUNS_BOUNDED_MAX, True, True, "ok"),
        (RUNS_BOUNDED_MAX + 1, True, True, "warning"),
        (RUNS_BOUNDED_MAX + 1, False, False, "ok"),
    ],
)
def test_many_runs_at_once_are_a_warning(
    due: int, bounded: bool, catchup: bool, state: str
) -> None:
    first = datetime(2020, 1, 1, tzinfo=UTC)
    dag = DeclaredDag(
        dag_id="p",
        pipeline=PIPELINE,
        job_root="/srv",
        first=first,
        last=first + timedelta(days=due) if bounded else None,
        catchup=catchup,
        due=due,
    )
    assert schedule_finding(dag).state == state


@pytest.mark.parametrize(
    ("first", "last", "schedule", "start", "runs"),
    [
        ("2013-01-02", "2013-01-05", "@daily", "2013-01-02", 4),
        ("2013-01-02", "2013-04-11", "@daily", "2013-01-02", 100),
        ("2013-01-02", "2013-04-12", "@monthly", "2013-01-01", 4),
        ("2013-05-31", "2021-08-01", "@monthly", "2013-05-01", 100),
        ("2013-05-31", "2021-09-01", "@yearly", "2013-01-01", 9),
        ("1970-05-13", "2025-12-30", "@yearly", "1970-01-01", 56),
    ],
)
def test_a_new_dag_of_old_records_gets_the_finest_schedule_with_few_runs(
    first: str, last: str, schedule: str, start: str, runs: int
) -> None:
    ends = (datetime.fromisoformat(one).replace(tzinfo=UTC) for one in (first, last))
    found = fitting_schedule(*ends)
    assert found == (schedule, datetime.fromisoformat(start).replace(tzinfo=UTC), runs)
    assert runs <= RUNS_NEW_MAX
