"""The spans of a ledger whose records a topic drops soon, as text for people."""

from __future__ import annotations

from tallystick.cli.colour import painted
from tallystick.cli.text import INDENT, paragraph
from tallystick.operations.lag import Lag
from tallystick.operations.retention_guard import (
    endangered,
    lag_outlooks,
    outlook_text,
    span_text,
)
from tallystick.operations.status import Status

SHOWN = 20


def retention_text(answer: Status, lag: Lag | None) -> list[str]:
    """Return a part with a line for each span that is not committed and whose records a topic drops, or none."""
    found = endangered(lag_outlooks(answer.uncommitted, lag)) if lag is not None else ()
    if not found:
        return []
    head = painted("RETENTION:", "bad")
    lines = [f"{head} topics may soon drop records that are not committed, or have dropped them:"]
    lines += [
        paragraph(f"{span_text(one.span)}: {outlook_text(one)}", indent=INDENT)
        for one in found[:SHOWN]
    ]
    if len(found) > SHOWN:
        lines.append(f"{INDENT}and {len(found) - SHOWN:,} more")
    lines.append("Fill the gaps with the commands above, or raise retention.ms of the topic.")
    return ["\n".join(lines)]
