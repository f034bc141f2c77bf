"""What the ledger must look like when every run is green: each interval committed, nothing granted, no gap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any


def not_settled(
    read: Callable[[str], Any], intervals: Sequence[tuple[datetime, datetime]]
) -> str | None:
    """Why a ledger is not settled, None where it is; read as the JSON that it is.

    A green run whose interval is not committed is a gap that nobody will look for; a grant that is left stands in the
    way of whoever comes next.
    """
    root = read("root.json")
    entries = [e for _, _, key in root["pages"] for e in read(key)["entries"]]
    for entry in entries:
        if entry["granted"] is not None:
            return (
                f"every run is green, and {entry['interval']} is still granted: {entry['granted']}"
            )
        if entry["committed"] is None:
            return f"every run is green, and {entry['interval']} is in the ledger, not committed"
    committed = sorted((_at(e["interval"][0]), _at(e["interval"][1])) for e in entries)
    for start, end in intervals:
        reached = start
        for first, last in committed:
            if first <= reached < last:
                reached = last
        if reached < end:
            return f"every run is green, and nothing is committed from {reached} to {end}"
    return None


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)
