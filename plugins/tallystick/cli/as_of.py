"""Parses `--as-of`: a version of the root, or an instant."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from tallystick.errors import InvalidRequest

_VERSION = re.compile(r"[0-9]{1,12}")
_SHOWN_CHARS = 80


def parsed(text: str | None) -> int | datetime | None:
    """Return the version or the instant that a text names; an instant without an offset is in UTC.

    Raises InvalidRequest if it is neither.
    """
    if text is None:
        return None
    if _VERSION.fullmatch(text):
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(
            f"--as-of: expected a version or an instant, found {text[:_SHOWN_CHARS]!r}.",
            hint="use e.g. 412, or 2026-11-26T10:00Z; without an offset it is UTC. `tally log` lists the versions and "
            "times of the commits.",
        ) from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
