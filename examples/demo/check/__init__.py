"""The independent check: tables and ledger contain exactly what was sent, and that equals the CSV.

It imports nothing of tallystick (a contract of import-linter and a test enforce this). It reads root.json with boto3, the
tables with PyIceberg and again with DuckDB's iceberg_scan, and compares row by row in DuckDB. The reference is the CSV,
and the producer's record of what it sent: a Parquet file with partition, offset (from the delivery report), kind (ok,
cut, type, utf8, aborted), the field that is wrong (for type), transaction, key, CSV row, CreateTime and the SHA-256 of
the value.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import duckdb

from examples.checks import Finding, finding
from examples.demo.check import ledger, ontime, rows, truth
from examples.demo.check.lake import TABLES, LakeAddress, Objects, load_tables

__all__ = ["Finding", "LakeAddress", "Verdict", "check_lake"]

_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Verdict:
    """All findings; it passes if each of them holds."""

    findings: Sequence[Finding]

    @property
    def passed(self) -> bool:
        """True if there is a finding and every finding holds."""
        return bool(self.findings) and all(f.holds for f in self.findings)

    def lines(self) -> Iterator[str]:
        """Return the findings as text, one line each, then the verdict."""
        for found in self.findings:
            line = f"  {'ok  ' if found.holds else 'BAD '} {found.check:<18} {found.text}"
            yield from textwrap.wrap(line, _WIDTH, subsequent_indent=" " * 26, drop_whitespace=True)
        yield f"The check: {'PASS' if self.passed else 'FAIL'}."


def check_lake(
    lake: LakeAddress,
    *,
    topic: str,
    sent: Path,
    csv_archive: Path,
    pipeline: str = "flights",
    until: datetime | None = None,
) -> Verdict:
    """Compare the lake of a pipeline (flights or ontime) with the CSV and return the findings.

    With `until`, the reference is limited to flights that are due before: the lake must contain these and no others.

    An object that cannot be read is a finding that does not hold, never an exception.
    """
    findings: list[Finding] = []
    with duckdb.connect(":memory:", config={"autoinstall_known_extensions": False}) as db:
        try:
            db.execute("SET TimeZone = 'UTC'")
            declared = ontime.DECLARED if pipeline == "ontime" else None
            truth.load(db, csv_archive, sent, until=until, declared=declared)
            findings.append(truth.check_sent(db))
            root = Objects(lake).json("root.json")
            load_tables(db, lake, root, TABLES[pipeline])
            if pipeline == "ontime":
                findings.extend(ontime.check_ontime(db, csv_archive.with_name("airlines.csv")))
            else:
                findings.extend(rows.check_flights(db, topic))
                findings.extend(rows.check_hourly(db))
            findings.extend(rows.check_dead_letters(db, topic))
            findings.extend(rows.check_readers(db, table) for table in TABLES[pipeline])
            findings.extend(ledger.check_ledger(db, Objects(lake), root, topic))
            findings.append((ontime if pipeline == "ontime" else rows).check_sum(db))
        except Exception as error:  # noqa: BLE001  (any failure of the check itself is a FAIL)
            findings.append(finding("readable", "", f"{type(error).__name__}: {error}"))
    return Verdict(findings)
