"""`tally status`, `tally log`, `tally tables`: what a lake holds, what it lacks, and which grants are open."""

from __future__ import annotations

from tallystick.operations.status.gaps import Gap
from tallystick.operations.status.read import (
    CommitLine,
    CommitLog,
    IntervalStatus,
    LakeTables,
    Status,
    TableStatus,
    dead_share,
    read_log,
    read_status,
    read_tables,
)

__all__ = [
    "CommitLine",
    "CommitLog",
    "Gap",
    "IntervalStatus",
    "LakeTables",
    "Status",
    "TableStatus",
    "dead_share",
    "read_log",
    "read_status",
    "read_tables",
]
