"""Warns in the log of a plan task, and in its run's note, of gaps whose records a topic may drop soon."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator, Mapping, Sequence

from tallystick.lake import Lake
from tallystick.operations.gaps_at_risk import KeptLog, gaps_at_risk
from tallystick.operations.retention_guard import SpanOutlook, outlook_text, span_text

SHOWN_MAX = 5
log = logging.getLogger(__name__)


def found_at_risk(
    lake: Lake, described: Mapping[str, KeptLog], *, dag: str
) -> tuple[SpanOutlook, ...]:
    """Return the gaps of which a topic may drop records soon; none if that cannot be found out.

    It raises nothing: the run is planned already, and a warning must not make its task fail.
    """
    try:
        return gaps_at_risk(lake, described, dag=dag)
    except Exception as error:  # noqa: BLE001 - as above
        log.info("the retention of gaps was not checked: %s", type(error).__name__)
        return ()


def warning_lines(found: Sequence[SpanOutlook]) -> Iterator[tuple[str, str]]:
    """Yield a warning and its command for each gap, at most 5, then a warning without a command for the others."""
    for one in found[:SHOWN_MAX]:
        yield f"{span_text(one.span)}: {outlook_text(one)}; fill it:", shlex.join(one.span.command)
    if len(found) > SHOWN_MAX:
        yield f"and {len(found) - SHOWN_MAX} more; `tally status` has all of them", ""


def risk_note(found: Sequence[SpanOutlook]) -> str:
    """Return the note for the run's page, as one line: the first gap, and how many others there are."""
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"plan: retention: {span_text(found[0].span)}{more}: {outlook_text(found[0])}"
