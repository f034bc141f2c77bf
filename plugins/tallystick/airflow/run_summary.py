"""Summarizes what one root has of a run's interval, for the end of the task's log and for the Asset event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tallystick.airflow.messages import some
from tallystick.format.interval import Interval
from tallystick.format.page import TOTALS, Totals
from tallystick.format.report import Report
from tallystick.lake import Lake, Snapshot
from tallystick.operations.commit import CommitResult
from tallystick.protocol.planning import gaps


class Covered:
    """The content of a run's interval in one root: the committed entries, the grants with their requests, the gaps."""

    def __init__(self, interval: Interval | None, snapshot: Snapshot) -> None:
        self.interval = interval
        self.version = snapshot.root.version
        ledger = snapshot.ledger(interval.start, interval.end) if interval else None
        entries = ledger.overlapping(interval) if ledger and interval else ()
        self.committed = [e for e in entries if e.committed is not None]
        self.held = [e for e in entries if e.committed is None and e.granted is not None]
        self.gaps = gaps(interval, [e.interval for e in entries]) if interval else ()
        records = [e.committed.record for e in self.committed if e.committed is not None]
        self.record = max(records, default=None)

    @classmethod
    def read(cls, lake: Lake, interval_json: Any) -> Covered:
        """Return the content according to the current root; `interval_json` is from the XCom of `plan`."""
        interval = Interval.from_json(interval_json, "XCom of plan") if interval_json else None
        return lake.read(lambda snapshot: cls(interval, snapshot))

    def lines(self) -> Sequence[str]:
        """Return the last lines of the task's log."""
        if self.interval is None:
            return [f"nothing was new; the lake is at version {self.version}"]
        parts = some([e.interval for e in self.committed]) if self.committed else "nothing"
        lines = [f"{self.interval} at version {self.version}: committed: {parts}"]
        for entry in self.held:
            if entry.granted is not None:
                lines.append(f"not committed: {entry.interval}, granted to {entry.granted.request}")
        if self.gaps:
            lines.append(f"not committed, and not granted to any run: {some(self.gaps)}")
        if self.record:
            lines.append(f"latest commit record: {self.record}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return the values for XCom and the Asset event. `totals` covers all commits in the interval, by any run."""
        committed = [e.committed for e in self.committed if e.committed is not None]
        return {
            "version": self.version,
            "interval": self.interval.to_json() if self.interval else None,
            "covered": [e.interval.to_json() for e in self.committed],
            "held": [e.interval.to_json() for e in self.held],
            "gaps": [i.to_json() for i in self.gaps],
            "record": self.record,
            "totals": _totals_json(Totals.sum_of(c.totals for c in committed)),
            "generation": max((c.generation for c in committed), default=None),
        }


class Own:
    """The counts of what the run's own plans committed: in this try of `commit`, or in an earlier one (`already`).

    Rows and bytes come from the reports. They are None if gc has deleted one of the reports.
    """

    def __init__(self) -> None:
        self.intervals = 0
        self.already = 0
        self.totals = Totals()
        self.rows: Counter[str] | None = Counter()
        self.size_bytes: int | None = 0

    def add(self, result: CommitResult, report: Report | None) -> None:
        """Count one plan, unless another run has replaced it since."""
        if result.replaced_by is not None:
            return
        self.intervals += 1
        self.already += result.already
        self.totals = Totals.sum_of((self.totals, result.totals))
        if report is None or self.rows is None or self.size_bytes is None:
            self.rows = self.size_bytes = None
            return
        for file in report.files:
            self.rows[file.table] += file.rows
            self.size_bytes += file.size_bytes

    def to_json(self) -> dict[str, Any]:
        """Return the values for XCom and the Asset event."""
        return {
            "intervals": self.intervals,
            "already": self.already,
            "totals": _totals_json(self.totals),
            "rows": None if self.rows is None else dict(sorted(self.rows.items())),
            "bytes": self.size_bytes,
        }


def _totals_json(totals: Totals) -> dict[str, int]:
    return {**{name: getattr(totals, name) for name in TOTALS}, "offsets": totals.offsets}
