"""The use cases `tally status`, `tally log` and `tally tables`: read the state of a lake, its gaps and open grants."""

from __future__ import annotations

from tallystick.operations.status.gaps import Gap
from tallystick.operations.status.newest import OlderIntervals
from tallystick.operations.status.outline import StatusCache
from tallystick.operations.status.past import AsOf
from tallystick.operations.status.problems import PROBLEMS, problems
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
from tallystick.operations.status.uncommitted import UncommittedSpan

__all__ = [
    "PROBLEMS",
    "AsOf",
    "CommitLine",
    "CommitLog",
    "Gap",
    "IntervalStatus",
    "LakeTables",
    "OlderIntervals",
    "Status",
    "StatusCache",
    "TableStatus",
    "UncommittedSpan",
    "dead_share",
    "problems",
    "read_log",
    "read_status",
    "read_tables",
]
