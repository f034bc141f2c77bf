"""The checks at the end of a round: a last compaction, the audit, `tally verify --deep`, and what gc leaves.

All faults have ended by then, so each command must succeed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from chaos.compactor import Compactor, published
from chaos.errors import ViolationError
from chaos.moved_rows import CompactedObjects, CompactedTables, audit
from chaos.records import row_of, sums_of
from chaos.settled import not_settled
from chaos.tally_process import Ended, TallyProcess
from chaos.workspace import PARTITIONS, Lake, Workspace
from oracle.audit import Finding
from oracle.place import ROOT
from oracle.produced import Sent
from oracle.reading import read_ledger

_LEFT = ("shared file", "row order", "deletes", "compaction")
_MOVED = ("compactions/", "/shared/", "/deletes/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """The end of one round. `acknowledged`: plans whose commit Airflow got as successful; `intervals`: all days."""

    workspace: Workspace
    lake: Lake
    compactor: Compactor
    sent: Sequence[Sent]
    acknowledged: set[str]
    intervals: Sequence[tuple[datetime, datetime]]
    note: Callable[[str], None]

    def run(self) -> Finding:
        """Check everything, and return the audit's finding; raises ViolationError."""
        self._succeeds("tally compact", self.compactor.compact())
        problem = not_settled(lambda key: self.workspace.object(self.lake, key), self.intervals)
        if problem is not None:
            raise ViolationError(problem)
        self._audit(collected=False)
        self._check_lake(misnamed)
        # The grants of killed compactions are cancelled, so that gc also deletes what these wrote.
        collected = self.compactor.collect(reader_grace="0s", cancel_after="0s")
        self._succeeds("tally gc", collected)
        garbage: Mapping[str, Any] = json.loads(collected.out)["garbage"]
        counts = self.compactor.counts
        counts.left = sum(garbage[kind]["objects"] for kind in _LEFT if kind in garbage)
        self._check_lake(left)
        options = ("--deep", "--every-record", "events", "--json")
        proof = TallyProcess(self.workspace, self.lake, "verify", *options).end()
        self._succeeds("tally verify --deep", proof)
        finding = self._audit(collected=True)
        objects = CompactedObjects(self.workspace.place(self.lake))
        try:
            counts.published = published(objects)
        finally:
            objects.close()
        return finding

    def _succeeds(self, command: str, ended: Ended) -> None:
        if ended.code != 0:
            raise ViolationError(f"after the end of all faults, {command} ended with {ended}")

    def _audit(self, *, collected: bool) -> Finding:
        finding = audit(
            self.workspace.place(self.lake),
            self.sent,
            acknowledged=self.acknowledged,
            payload=row_of,
            aggregates={"per_kind": sums_of},
            collected=collected,
        )
        if not finding.ok:
            raise ViolationError(
                f"{finding.records} records, {finding.duplicates} duplicates, {finding.missing} missing; "
                + "; ".join(finding.problems[:5])
            )
        # An oracle that read only half of the lake would find no problem, either.
        if finding.payloads < finding.records or finding.logs != PARTITIONS:
            raise ViolationError(
                f"only {finding.payloads} of {finding.records} records were compared with what was sent, and "
                f"{finding.logs} of {PARTITIONS} partitions read again"
            )
        return finding

    def _check_lake(self, problems: Callable[[CompactedObjects], Iterator[str]]) -> None:
        objects = CompactedObjects(self.workspace.place(self.lake))
        try:
            first = next(problems(objects), None)
        finally:
            objects.close()
        if first is not None:
            raise ViolationError(first)


def misnamed(objects: CompactedObjects) -> Iterator[str]:
    """Yield where the ledger and the tables disagree on which compaction has moved files of an interval."""
    root = objects.json(ROOT)
    tables = CompactedTables(objects)
    moved_by: dict[tuple[str, str], set[str]] = {}
    for name, table in root["tables"].items():
        tables.live(table["metadata"])
        for key, moved in tables.moved[table["metadata"] or ""].items():
            plan = "/".join(key.split("/data/")[-1].split("/")[:2])
            moved_by.setdefault((name, f"plans/{plan}.json"), set()).add(moved.shared.split("/")[3])
    for entry in read_ledger(objects, root).committed():
        committed = entry["committed"]
        for name in root["tables"]:
            named = committed["compactions"].get(name)
            found = moved_by.pop((name, committed["plan"]), set())
            if found != ({named} if named is not None else set()):
                yield f"{entry['interval']} names compaction {named} of {name}, its rows are in {found}"
    for (name, plan), found in moved_by.items():
        yield f"rows of {plan}, which is not committed, are in {found} of {name}"


def left(objects: CompactedObjects) -> Iterator[str]:
    """Yield what gc should have deleted: grants, and objects of compactions that nothing names any more.

    gc keeps for a month what a commit reaches whose record is outside the chain: it may have been published before the
    root was set back.
    """
    root = objects.json(ROOT)
    if root["compacting"]:
        yield f"compactions are granted after gc has cancelled all grants: {root['compacting']}"
    needed = {
        f"compactions/{table}/{number}.json"
        for entry in read_ledger(objects, root).committed()
        for table, number in entry["committed"]["compactions"].items()
    }
    listed = objects.listing()
    chain = set()
    key = root["record"]
    while key is not None:
        chain.add(key)
        key = objects.json(key)["parent"]
    states = [root]
    for key in sorted(k for k in listed if k.startswith("commits/") and k not in chain):
        record = objects.json(key)
        states.append(record)
        needed |= set(record["compactions"])
    tables = CompactedTables(objects)
    for state in states:
        for table in state["tables"].values():
            if table["metadata"] in listed:
                needed |= tables.reached(table["metadata"], listed)
    # A stage that has found rows in a sorted file reads its row order later: it stays as long as the file.
    shared = [key.split("/") for key in needed if "/shared/" in key]
    needed |= {f"compactions/{table}/{number}/" for _, table, _, number, _ in shared}
    for key in listed:
        if any(part in key for part in _MOVED) and not _is_needed(key, needed):
            yield f"{key} is still there after gc, and nothing names it"


def _is_needed(key: str, needed: set[str]) -> bool:
    """Return True if an object is needed; a row order is needed with its compaction, and with its shared file."""
    above = key.rpartition("/")[0]
    return key in needed or f"{above}.json" in needed or f"{above}/" in needed
