"""Commit records: immutable, one per swap that committed something, chained by `parent`.

A record holds the tables and pages as they stood after its swap, so that an old version can be read and gc knows what
the retained versions reach.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tallystick.format import keys
from tallystick.format.canonical import built, corrupt, decode, encode, fields, text
from tallystick.format.interval import Interval, Request, parse_interval, parse_request
from tallystick.format.page import PageRef, Totals, parse_page_ref, parse_totals
from tallystick.format.report import RangeAccount, parse_account
from tallystick.format.root import RootTable, parse_table

FORMAT = "tallystick.record/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedInterval:
    """One interval that a swap committed: by which plan and report, what it replaced, what became of each offset.

    `report` is None for an interval without offsets. `added` and `dropped` name data files by table.
    """

    interval: Interval
    plan: str
    report: str | None
    request: Request
    generation: int
    fingerprint: str
    replaces: str | None
    totals: Totals
    accounts: tuple[RangeAccount, ...]
    added: Mapping[str, tuple[str, ...]]
    dropped: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        keys.check_plan(self.plan)
        if self.report is not None:
            keys.check_report(self.report)
        if self.replaces is not None:
            keys.check_record(self.replaces)
        for files in (self.added, self.dropped):
            for table, names in files.items():
                for name in names:
                    keys.check_data_file(name, table)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "interval": self.interval.to_json(),
            "plan": self.plan,
            "report": self.report,
            "request": self.request.to_json(),
            "generation": self.generation,
            "fingerprint": self.fingerprint,
            "replaces": self.replaces,
            "totals": self.totals.to_json(),
            "accounts": [a.to_json() for a in self.accounts],
            "added": {t: list(f) for t, f in self.added.items()},
            "dropped": {t: list(f) for t, f in self.dropped.items()},
        }


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise corrupt(where, "a list of keys belongs here")
    return tuple(text(item, where) for item in value)


def _parse_committed(value: Any, where: str) -> CommittedInterval:
    f = fields(value, where)
    interval = parse_interval(f.take("interval", list), where)
    plan, fingerprint = f.take("plan", str), f.take("fingerprint", str)
    report, replaces = f.take_or_none("report", str), f.take_or_none("replaces", str)
    request = parse_request(f.take("request", list), where)
    generation, totals = f.take("generation", int), parse_totals(f.take("totals", list), where)
    accounts = f.take_list("accounts", parse_account)
    added, dropped = f.take_map("added", _texts), f.take_map("dropped", _texts)
    f.done()
    return built(
        where,
        lambda: CommittedInterval(
            interval=interval,
            plan=plan,
            report=report,
            request=request,
            generation=generation,
            fingerprint=fingerprint,
            replaces=replaces,
            totals=totals,
            accounts=accounts,
            added=added,
            dropped=dropped,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One commit: what it did, and the tables and pages as they stood after it."""

    key: str
    version: int
    root_id: str
    parent: str | None
    committed_at: datetime
    library: str
    intervals: tuple[CommittedInterval, ...]
    tables: Mapping[str, RootTable]
    pages: tuple[PageRef, ...]

    def __post_init__(self) -> None:
        if keys.record_version(self.key) != self.version:
            raise ValueError(f"{self.key} is no record of version {self.version}")
        if self.parent is not None and keys.record_version(self.parent) >= self.version:
            raise ValueError(f"parent {self.parent} is not earlier than version {self.version}")
        keys.check_uuid(self.root_id)
        keys.check_instant(self.committed_at)
        if not self.intervals:
            raise ValueError("a record commits something")

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        return encode(
            {
                "format": FORMAT,
                "key": self.key,
                "version": self.version,
                "root_id": self.root_id,
                "parent": self.parent,
                "committed_at": keys.instant(self.committed_at),
                "library": self.library,
                "intervals": [c.to_json() for c in self.intervals],
                "tables": {name: t.to_json() for name, t in self.tables.items()},
                "pages": [p.to_json() for p in self.pages],
            }
        )


def parse_record(body: bytes, *, where: str) -> Record:
    """Read a record's bytes; raises Corrupt naming `where`."""
    f = decode(body, where=where, format_name=FORMAT)
    key, root_id, library = f.take("key", str), f.take("root_id", str), f.take("library", str)
    version, parent = f.take("version", int), f.take_or_none("parent", str)
    committed_at = f.take("committed_at", str)
    intervals = f.take_list("intervals", _parse_committed)
    tables, pages = f.take_map("tables", parse_table), f.take_list("pages", parse_page_ref)
    f.done()
    return built(
        where,
        lambda: Record(
            key=key,
            version=version,
            root_id=root_id,
            parent=parent,
            committed_at=keys.parse_instant(committed_at),
            library=library,
            intervals=intervals,
            tables=tables,
            pages=pages,
        ),
    )
