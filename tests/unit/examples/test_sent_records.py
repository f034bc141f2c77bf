"""The checks determine the interval of the log that each record belongs to."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from examples.checks.sent import by_day, part, read_sent
from unit.examples.sent_lines import line, write_sent


def test_a_late_record_belongs_to_the_interval_in_which_it_arrived(tmp_path: Path) -> None:
    sent = read_sent(
        write_sent(
            tmp_path / "sent",
            line(0, 1, 5),
            line(1, 2, 1, end="aborted"),  # it moves log time although no consumer reads it
            line(2, 1, 23),  # late
            line(3, 2, 2),
        )
    )
    days = by_day(sent)
    assert {day.day: [r.offset for r in records] for day, records in days.items()} == {
        1: [0],
        2: [1, 2, 3],
    }
    assert [r.visible for r in sent] == [True, False, True, True]


def test_log_time_is_separate_for_each_partition(tmp_path: Path) -> None:
    other = line(0, 1, 7) | {"partition": 1}
    sent = read_sent(write_sent(tmp_path / "sent", line(0, 2, 1), other))
    assert {day.day: len(records) for day, records in by_day(sent).items()} == {1: 1, 2: 1}


def test_an_interval_has_the_form_of_file_names_and_headers() -> None:
    assert part(datetime(2013, 1, 1, tzinfo=UTC)) == "20130101T000000000Z-20130102T000000000Z"
