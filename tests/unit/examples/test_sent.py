"""Which interval of the log a record belongs to, as the judges have it."""

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
            line(1, 2, 1, end="aborted"),  # it cuts the log although nobody reads it
            line(2, 1, 23),  # late
            line(3, 2, 2),
        )
    )
    days = by_day(sent)
    assert {day.day: [one.offset for one in found] for day, found in days.items()} == {
        1: [0],
        2: [1, 2, 3],
    }
    assert [one.counts for one in sent] == [True, False, True, True]


def test_partitions_are_cut_each_by_itself(tmp_path: Path) -> None:
    other = line(0, 1, 7) | {"partition": 1}
    sent = read_sent(write_sent(tmp_path / "sent", line(0, 2, 1), other))
    assert {day.day: len(found) for day, found in by_day(sent).items()} == {1: 1, 2: 1}


def test_an_interval_is_spelt_as_files_and_headers_have_it() -> None:
    assert part(datetime(2013, 1, 1, tzinfo=UTC)) == "20130101T000000000Z-20130102T000000000Z"
