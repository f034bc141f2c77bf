"""Lines that are not in the order of their times are counted; wrong files and formats are refused with the next step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tallystick.errors import InvalidRequest
from tallystick_devstack.json_lines import Line
from tallystick_devstack.line_records import LATE_MS, LineRecords
from tallystick_devstack.record_fields import Fields, TimeRange

ALLOWED = TimeRange(first_ms=1, last_ms=2**42)


def records(**fields: str) -> LineRecords:
    return LineRecords(name="f.jsonl", fields=Fields(**fields), allowed=ALLOWED)


def lines(*texts: str) -> Iterator[Line]:
    return (Line(number=n, value=text.encode()) for n, text in enumerate(texts, 1))


@pytest.mark.parametrize(
    ("times", "late", "by"),
    [
        ([1, 2, 3], 0, 0),
        ([LATE_MS + 1, 1], 0, LATE_MS),
        ([LATE_MS + 2, 1], 1, LATE_MS + 1),
        ([9 * LATE_MS, 1, 10 * LATE_MS, 2], 2, 10 * LATE_MS - 2),
    ],
)
def test_lines_behind_an_earlier_line_are_counted(times: list[int], late: int, by: int) -> None:
    # From 1971 on: a number that falls in 1970 is taken for one of another unit.
    first = 2**40
    found = records(time="t", time_format="epoch_ms")
    assert len(list(found.of(lines(*(f'{{"t": {first + at}}}' for at in times))))) == len(times)
    assert (found.late, found.latest_by_ms) == (late, by)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('{"released": "Jun 12 1998"}', "name the format of the field with --time-format"),
        (
            '{"other": 1}',
            "use a field that the lines have: other; a.b is the field b of the object a",
        ),
        ("Title,Year", "make one JSON object of each line first: docs/quickstart/own-topic.md"),
    ],
)
def test_a_line_without_a_usable_time_is_refused_with_the_next_step(text: str, hint: str) -> None:
    found = records(time="released")
    with pytest.raises(InvalidRequest) as caught:
        list(found.of(lines(text)))
    assert hint in caught.value.hint
