"""Doors: a declaration that changed, then Clear; and Clear where the topic no longer holds the interval."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from support.door_desk import Desk
from support.door_project import (
    DAG_FILE,
    DECLARED_MORE,
    JOB_FILE_MORE,
    PARTITIONS,
    PER_DAY,
    Row,
    day,
)
from support.door_stories import story
from tallystick.format.page import Entry
from tallystick.format.root import Root
from tallystick.tables.reading import static_table

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.timeout(1800),
]
RUN = "day_1"


@dataclass(frozen=True)
class Declared:
    """A day before and after its table got a column more."""

    before: Entry
    after: Entry
    rows_before: list[Row]
    rows: list[Row]
    expected: list[Row]
    twice: list[tuple[int, int | None]]
    root: Root


@story("declared")
def column_added(desk: Desk) -> Declared:
    """Commit a day; declare a column more and let the job return it; clear the day."""
    desk.switch(on=True)
    desk.trigger(RUN, start=day(1), end=day(2))
    desk.wait(RUN)
    before, rows_before = desk.entry(day(1)), desk.rows()
    project = desk.doors.project
    (project / "spark_jobs" / "declared.py").write_text(JOB_FILE_MORE)
    (project / "dags" / "declared.py").write_text(DAG_FILE + DECLARED_MORE)
    desk.clear(RUN, "plan")
    desk.wait(RUN)
    metadata = desk.root.tables["events"].metadata
    assert metadata is not None
    found = static_table(desk.lake.store, metadata).scan().to_arrow().to_pylist()
    return Declared(
        before=before,
        after=desk.entry(day(1)),
        rows_before=rows_before,
        rows=desk.rows(),
        expected=desk.expected(1, topic="expiring"),
        twice=[(row["n"], row["twice"]) for row in found],
        root=desk.root,
    )


def test_clear_after_a_column_was_added_replaces_the_day_with_the_column_filled(
    column_added: Declared,
) -> None:
    assert column_added.rows_before == column_added.expected
    assert (column_added.before.generation, column_added.after.generation) == (1, 2)
    assert column_added.rows == column_added.expected
    assert set(column_added.twice) == {(1, 2)}


@dataclass(frozen=True)
class Expired:
    """A clear with changed code of a day that the topic has lost."""

    told: str
    tries: int
    root: Root
    rows: list[Row]


@story("declared")
def expired(desk: Desk, column_added: Declared) -> Expired:
    """Let the topic lose most of the day; change the code; clear the day."""
    del column_added
    tries = desk.tries(RUN, "plan")
    admin = AdminClient(desk.doors.kafka)
    gone = [TopicPartition("expiring", p, PER_DAY - 5) for p in range(PARTITIONS)]
    for deleted in admin.delete_records(gone).values():
        deleted.result(60)
    job = desk.doors.project / "spark_jobs" / "declared.py"
    job.write_text(JOB_FILE_MORE.replace("FACTOR = 1", "FACTOR = 10"))
    desk.clear(RUN, "plan")
    desk.wait(RUN, "failed")
    return Expired(
        told=desk.log(RUN, "plan"),
        tries=desk.tries(RUN, "plan") - tries,
        root=desk.root,
        rows=desk.rows(),
    )


def test_clear_with_changed_code_of_what_the_topic_has_lost_is_refused_and_the_commit_stands(
    expired: Expired, column_added: Declared
) -> None:
    assert "outside_retention: expiring[0]: offsets [0, 20) are wanted" in expired.told
    assert "the log begins at 15: 15 offsets are gone. Nothing was changed." in expired.told
    assert expired.tries == 1
    assert expired.root == column_added.root
    assert expired.rows == column_added.rows
