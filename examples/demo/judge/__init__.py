"""The judge: do tables and ledger say exactly what was sent, and does that equal the CSV?

It imports nothing of tallystick (a contract of the import linter and a test hold it to that): it opens root.json with
boto3, the tables with PyIceberg and again with DuckDB's iceberg_scan, and compares row by row in DuckDB. The truth is
the CSV, and the producer's own list of what it sent where: a Parquet file with partition, offset (from the delivery
report), kind (ok, cut, type, utf8, aborted), the field that is wrong (for type), transaction, key, CSV row, CreateTime
and the value's SHA-256.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import duckdb

from examples.demo.judge import ledger, ontime, rows, truth
from examples.demo.judge.asking import Finding
from examples.demo.judge.lake import TABLES, LakeAddress, Objects, load_tables

__all__ = ["Finding", "LakeAddress", "Verdict", "judge"]

_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Verdict:
    """All findings; it passes when each holds."""

    findings: Sequence[Finding]

    @property
    def passed(self) -> bool:
        """Whether every check holds, and something was checked at all."""
        return bool(self.findings) and all(f.holds for f in self.findings)

    def lines(self) -> Iterator[str]:
        """The findings as text, one line each, then the verdict."""
        for finding in self.findings:
            line = f"  {'ok  ' if finding.holds else 'BAD '} {finding.check:<18} {finding.says}"
            yield from textwrap.wrap(line, _WIDTH, subsequent_indent=" " * 26, drop_whitespace=True)
        yield f"The judge says {'PASS' if self.passed else 'FAIL'}."


def judge(
    lake: LakeAddress,
    *,
    topic: str,
    sent: Path,
    csv_archive: Path,
    pipeline: str = "flights",
    until: datetime | None = None,
) -> Verdict:
    """Compare the lake of a pipeline (flights or ontime) with the CSV and return what was found.

    With `until`, only flights that are due before are looked at: the lake must hold them and no more.

    Anything that cannot be read is a finding that does not hold, never an exception.
    """
    findings: list[Finding] = []
    with duckdb.connect(":memory:", config={"autoinstall_known_extensions": False}) as db:
        try:
            db.execute("SET TimeZone = 'UTC'")
            declared = ontime.DECLARED if pipeline == "ontime" else None
            truth.load(db, csv_archive, sent, until=until, declared=declared)
            findings.append(truth.judge_sent(db))
            root = Objects(lake).json("root.json")
            load_tables(db, lake, root, TABLES[pipeline])
            if pipeline == "ontime":
                findings.extend(ontime.judge_ontime(db, csv_archive.with_name("airlines.csv")))
            else:
                findings.extend(rows.judge_flights(db, topic))
                findings.extend(rows.judge_hourly(db))
            findings.extend(rows.judge_dead_letters(db, topic))
            findings.extend(rows.judge_readers(db, table) for table in TABLES[pipeline])
            findings.extend(ledger.judge_ledger(db, Objects(lake), root, topic))
            findings.append((ontime if pipeline == "ontime" else rows).judge_sum(db))
        except Exception as error:  # noqa: BLE001  (whatever keeps the judge from looking is a reason to say FAIL)
            findings.append(Finding("readable", False, f"{type(error).__name__}: {error}"))
    return Verdict(findings)
