"""The ledger after all runs have succeeded: each interval must be committed, without grants and gaps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any


def not_settled(
    read: Callable[[str], Any], intervals: Sequence[tuple[datetime, datetime]]
) -> str | None:
    """Return why a ledger is not settled, None if it is; the stored JSON is read without tallystick.

    If the interval of a successful run is not committed, the gap would never be filled. A remaining grant would block
    later runs.
    """
    root = read("root.json")
    entries = [e for _, _, key in root["pages"] for e in read(key)["entries"]]
    for entry in entries:
        if entry["granted"] is not None:
            return (
                f"every run succeeded, and {entry['interval']} is still granted: {entry['granted']}"
            )
        if entry["committed"] is None:
            return f"every run succeeded, and {entry['interval']} is in the ledger, not committed"
    committed = sorted((_at(e["interval"][0]), _at(e["interval"][1])) for e in entries)
    for start, end in intervals:
        reached = start
        for first, last in committed:
            if first <= reached < last:
                reached = last
        if reached < end:
            return f"every run succeeded, and nothing is committed from {reached} to {end}"
    return None


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)
