"""The use case `commit`: check the staged files, then swap the root that makes them visible. No JVM.

One PUT publishes all tables, the dead letters and the offsets together. Every try of the swap decides again, on the root
that it has read.

    result       the result, and the search for an earlier commit of the plan
    report       the check of the report against the plan and against the files
    replacement  the conditions under which a committed generation may be replaced
    attempt      the loop of the swap: one try decides, writes the metadata of the tables, and builds the new root
"""

from tallystick.operations.commit.attempt import TableStager, commit
from tallystick.operations.commit.report import check_report
from tallystick.operations.commit.result import CommitResult, committed_report, find_commit

__all__ = [
    "CommitResult",
    "TableStager",
    "check_report",
    "commit",
    "committed_report",
    "find_commit",
]
