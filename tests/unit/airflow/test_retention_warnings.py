"""A plan task warns of gaps whose records the topic drops soon, in its log and in its run's note, and never fails."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from support.small_lake import TOPIC, day, days
from tallystick.airflow import retention
from tallystick.airflow.lines import WIDTH_MAX
from tallystick.airflow.note_text import NOTE
from tallystick.format.interval import Interval
from tallystick.kafka.wire import TopicRetention
from unit.airflow.bench import Bench, bench
from unit.airflow.runs import FakeRun

__all__ = ["bench"]

# kafka-python reads its schemas in a way that Python 3.11 (not 3.13) calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")

HOUR = timedelta(hours=1)


def run_of(interval: Interval) -> FakeRun:
    run_id = f"scheduled__{interval.start.isoformat()}"
    return FakeRun(interval=interval, run_after=interval.end, run_id=run_id)


def keep(bench: Bench, left: timedelta, of: datetime, *, kept_bytes: int | None = None) -> None:
    """Let the topic keep records so long that those of `of` have this time left."""
    kept_ms = round((datetime.now(UTC) - of + left) / timedelta(milliseconds=1))
    bench.log.topics[TOPIC].kept = TopicRetention(kept_ms=kept_ms, kept_bytes=kept_bytes)


def with_gap(bench: Bench) -> FakeRun:
    """Commit days 1 and 4, and return the run that plans day 6: days 2 and 3 are a gap."""
    bench.run_all(run_of(days(1, 2)))
    bench.run_all(run_of(days(4, 5)))
    return run_of(days(6, 7))


def warnings(text: str) -> list[str]:
    """Return the warnings that a task has logged, without their heads."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    parts = (re.search(r"\[warning  \] +(.*) \[", line) for line in plain.splitlines())
    return [part[1].rstrip() for part in parts if part]


def test_a_gap_that_is_dropped_soon_is_a_warning_with_its_command(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    run = with_gap(bench)
    keep(bench, 5.5 * HOUR, day(2), kept_bytes=1 << 30)
    capsys.readouterr()
    planned = run.execute(bench.task("plan"))
    lines = warnings(capsys.readouterr().out)
    shown = " ".join(" ".join(lines).split())
    assert "gap 2013-01-02 to 2013-01-04: topic events may drop its first record from " in shown
    assert "(in 5 h" in shown
    assert "or earlier by retention.bytes; fill it:" in shown
    command = (
        "airflow dags trigger small --conf "
        '\'{"from": "2013-01-02T00:00:00Z", "to": "2013-01-04T00:00:00Z"}\''
    )
    assert [line for line in lines if command in line] != []  # on one line, to be copied
    assert max(len(line) for line in lines if command not in line) <= WIDTH_MAX
    assert len(planned["plans"]) == 1
    note = run.pushed["plan", NOTE]
    assert note.startswith("plan: retention: gap 2013-01-02 to 2013-01-04: topic events may drop")
    assert "\n" not in note


def test_a_gap_with_time_is_no_warning_and_leaves_no_note(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    run = with_gap(bench)
    keep(bench, 4000 * 24 * HOUR, day(2))
    capsys.readouterr()
    run.execute(bench.task("plan"))
    assert "may drop" not in capsys.readouterr().out
    assert run.pushed == {}


def test_the_run_of_the_gap_itself_is_not_warned_of_it(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    with_gap(bench)
    keep(bench, 5 * HOUR, day(2))
    run = run_of(days(2, 4))
    capsys.readouterr()
    run.execute(bench.task("plan"))
    assert "may drop" not in capsys.readouterr().out
    assert run.pushed == {}


def test_of_many_gaps_five_are_shown_and_the_others_are_counted(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    for partition in (0, 1):
        for hour in range(7 * 24, 9 * 24):
            bench.log.append(TOPIC, partition, day(1) + hour * HOUR, n=hour)
    first = day(8)
    for hour in range(0, 16, 2):
        start = first + hour * HOUR
        bench.run_all(run_of(Interval(start=start, end=start + HOUR)))
    keep(bench, HOUR, first)
    capsys.readouterr()
    run = run_of(Interval(start=first + 16 * HOUR, end=first + 17 * HOUR))
    run.execute(bench.task("plan"))
    lines = warnings(capsys.readouterr().out)
    # The run's own interval follows the seventh gap of an hour, and an eighth one.
    assert sum("airflow dags trigger" in line for line in lines) == retention.SHOWN_MAX
    assert [line for line in lines if line.startswith("and 3 more; `tally status`")] != []
    assert " and 7 more: topic events may drop" in run.pushed["plan", NOTE]


@pytest.mark.parametrize("error", [ValueError("a defect"), KeyError("page")])
def test_a_check_that_fails_does_not_make_the_task_fail(
    bench: Bench,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = with_gap(bench)
    keep(bench, 5 * HOUR, day(2))

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(retention, "gaps_at_risk", fail)
    assert len(run.execute(bench.task("plan"))["plans"]) == 1
    assert run.pushed == {}


def test_without_a_known_retention_nothing_is_logged(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    run = with_gap(bench)
    capsys.readouterr()
    run.execute(bench.task("plan"))
    assert "may drop" not in capsys.readouterr().out
    assert run.pushed == {}
