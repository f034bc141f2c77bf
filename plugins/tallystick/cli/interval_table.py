"""The table of intervals in `tally status`. A run id is never cut or broken; the dates are shortened instead.

If all intervals begin and end at midnight, a row has both dates. Otherwise the intervals of a day have a heading with
the day, and rows with times.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby

from tallystick.cli import colour
from tallystick.cli.layout import Line, listing
from tallystick.format.interval import Interval, Request
from tallystick.format.page import Totals
from tallystick.operations.status import IntervalStatus, dead_share

_DAY = timedelta(days=1)


def interval_table(intervals: Sequence[IntervalStatus], dag: str | None) -> str:
    """Return the table; `dag`: the DAG of all intervals, which is then left out of each row."""
    headings = ("from", "to", "state", "gen", "records", "dead", "run" if dag else "DAG / run")
    lines: list[Line] = []
    if all(
        _at_midnight(one.interval.start) and _at_midnight(one.interval.end) for one in intervals
    ):
        lines += [_row(f"{one.interval.start:%Y-%m-%d}", one, dag) for one in intervals]
    else:
        for day, of_day in groupby(intervals, key=lambda one: one.interval.start.date()):
            lines.append(f"{day:%Y-%m-%d}")
            lines += [_row(_time(one.interval.start), one, dag) for one in of_day]
    return listing(headings, lines, right=("gen", "records", "dead"), paint={"state": colour.state})


def _row(start: str, one: IntervalStatus, dag: str | None) -> tuple[str, ...]:
    counts = ("", "") if one.totals is None else (f"{one.totals.records:,}", _dead(one.totals))
    return (start, _end(one.interval), one.state, str(one.generation), *counts, run(one.owner, dag))


def run(request: Request, dag: str | None) -> str:
    """Return the run of a request, without its DAG if that is `dag`."""
    owner = str(request)
    return owner.removeprefix(f"{dag} / ") if dag is not None else owner


def _at_midnight(at: datetime) -> bool:
    return at == at.replace(hour=0, minute=0, second=0, microsecond=0)


def _time(at: datetime) -> str:
    if at.microsecond:
        return f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}"
    return f"{at:%H:%M:%S}" if at.second else f"{at:%H:%M}"


def _end(interval: Interval) -> str:
    """Return the end without what it has in common with the start: 01:00, 24:00, 01-02, or 01-02 06:00."""
    start, end = interval.start, interval.end
    date = f"{end:%m-%d}" if end.year == start.year else f"{end:%Y-%m-%d}"
    if _at_midnight(start) and _at_midnight(end):
        return date
    if end.date() == start.date():
        return _time(end)
    if _at_midnight(end) and end.date() == start.date() + _DAY:
        return "24:00"
    return date if _at_midnight(end) else f"{date} {_time(end)}"


def _dead(totals: Totals) -> str:
    """Return the number of dead letters with their share; the share is `all` only if it is exactly 1."""
    share = dead_share(totals)
    if not share:
        return f"{totals.dead_letters:,}"
    percent = "all" if share == 1 else "<1%" if share < 0.01 else f"{int(share * 100)}%"
    return f"{totals.dead_letters:,} ({percent})"
