"""The explorer's oracle: reads the objects as plain JSON, without the protocol's code, after each applied swap."""

from __future__ import annotations

import itertools
import json
from typing import Any

from simulation.environment import Simulation, ViolationError

Offsets = dict[tuple[str, int], list[tuple[int, int]]]


class Oracle:
    """The last root that was checked. Raises a ViolationError if a new one breaks the promise."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.before: dict[str, Any] | None = None
        self.entries_before: list[dict[str, Any]] = []
        self.checked = 0
        self.deleted: set[str] = set()
        self.readers: list[dict[str, Any]] = []
        self.adoptions = 0
        self.granted_before: set[str] = set()
        self.published: set[str] = set()
        self.deletes = 0

    def check_new(self) -> None:
        """Check each root that was applied since the last call."""
        while self.checked < len(self.sim.landed):
            self._check(json.loads(self.sim.landed[self.checked]))
            self.checked += 1

    def reader_opens(self) -> None:
        """Open a reader of the current root's tables, which reads until the end of the schedule."""
        self.readers.append(json.loads(self.sim.landed[-1]))

    def check_deletions(self) -> None:
        """Check I6 and I9: no object that was deleted since the last call is needed by the root, a grant or a reader."""
        new = self.sim.deleted.keys() - self.deleted
        if not new or self.before is None:
            return
        self.deleted |= new
        for entry in self._ledger(self.before)[0]:
            grant = entry["granted"]
            if grant is not None:
                _, part, uuid = grant["plan"].removesuffix(".json").split("/")
                for key in new:
                    # A report's key does not name its plan: an older plan's report may go while a new plan is granted.
                    report = key.startswith(f"attempts/{part}/")
                    own = report and json.loads(self.sim.deleted[key])["plan"] == grant["plan"]
                    if f"/{part}/{uuid}" in key or own:
                        raise ViolationError(
                            f"I9: {key} of the granted {grant['plan']} was deleted"
                        )
        self._records(self.before)
        self._compactions(self.before)
        for root in (self.before, *self.readers):
            for name, table in root["tables"].items():
                if table["metadata"] is not None:
                    self._rows(name, table["metadata"], f" at version {root['version']}")

    def _compactions(self, root: dict[str, Any]) -> None:
        """Check that the compactions that entries name are there, and the files of those that may be published."""
        for entry in self.entries_before:
            for table, uuid in ((entry["committed"] or {}).get("compactions") or {}).items():
                why = f"compaction of {entry['interval']}"
                for shared in self._object(f"compactions/{table}/{uuid}.json", why)["files"]:
                    order = shared["order"] and shared["order"]["key"]
                    if order and order not in self.sim.objects:
                        raise ViolationError(f"I3: {order}, a row order of a {why}, does not exist")
        for grant in root["compacting"]:
            uuid = grant["key"].removesuffix(".json").split("/")[-1]
            for key in self.deleted:
                inside = f"/shared/{uuid}/" in key or key.startswith(grant["key"][: -len(".json")])
                if inside:
                    raise ViolationError(f"I9: {key} of the granted {grant['key']} was deleted")

    def _rows(self, name: str, metadata: str, when: str = "") -> list[tuple[str, int, int, int]]:
        """Return the rows that a reader of the table gets: those at the positions that are not deleted."""
        found = []
        for key, deletes in self._object(metadata, f"metadata of {name}{when}").items():
            rows = self._object(key, f"file of {name}{when}")
            gone = [] if deletes is None else self._object(deletes, f"deletes of {name}{when}")
            self.deletes += bool(gone)
            if len(set(gone)) != len(gone) or not set(gone) <= set(range(len(rows))):
                raise ViolationError(f"I13: positions {gone} of {key} with {len(rows)} rows")
            found += [tuple(row) for n, row in enumerate(rows) if n not in gone]
        return found

    def _records(self, root: dict[str, Any]) -> None:
        key = root["record"]
        while key is not None:
            record = self._object(key, "record")
            key = record["parent"]
        for entry in self.entries_before:
            if entry["committed"] is not None:
                record = self._object(entry["committed"]["record"], "record of an entry")
                for done in record["intervals"]:
                    if done["plan"] == entry["committed"]["plan"] and done["report"] is not None:
                        self._object(done["report"], f"report of {entry['interval']}")

    def _object(self, key: str, why: str) -> Any:
        stored = self.sim.objects.get(key)
        if stored is None:
            raise ViolationError(f"I3: {key} ({why}) does not exist")
        return json.loads(stored.body)

    def _check(self, root: dict[str, Any]) -> None:
        if self.before is not None and root["version"] != self.before["version"] + 1:
            raise ViolationError(f"I10: version {root['version']} after {self.before['version']}")
        entries, boundaries = self._ledger(root)
        self._chain(root)
        committed = self._committed_ranges(root, entries, boundaries)
        for name, table in root["tables"].items():
            if name != "dead_letters":
                self._table(name, table, committed)
        self._history(entries)
        self._adopted(root, entries, boundaries)
        in_progress = [
            n for e in entries for n, s in e.get("outputs", {}).items() if s["in_progress"]
        ]
        if len(in_progress) != len(set(in_progress)):
            raise ViolationError(f"P4: two intervals are in progress for one of {in_progress}")
        self.before, self.entries_before = root, entries

    def _ledger(self, root: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        entries: list[dict[str, Any]] = []
        boundaries: dict[str, Any] = {}
        for _, _, key in root["pages"]:
            page = self._object(key, "page")
            entries += page["entries"]
            for boundary in page["boundaries"]:
                boundaries[boundary["at"]] = boundary["positions"]
        for entry in entries:
            for slot in ("granted", "committed"):
                if entry[slot] is not None:
                    self._object(entry[slot]["plan"], f"plan of {entry['interval']}")
        return sorted(entries, key=lambda e: e["interval"]), boundaries

    def _chain(self, root: dict[str, Any]) -> None:
        old = self.before["record"] if self.before else None
        if root["record"] != old:
            record = self._object(root["record"], "record")
            self.published.update(record["compactions"])
            if record["parent"] != old:
                raise ViolationError(
                    f"I10: record {root['record']} follows {record['parent']}, not {old}"
                )

    def _committed_ranges(
        self, root: dict[str, Any], entries: list[dict[str, Any]], boundaries: dict[str, Any]
    ) -> Offsets:
        ranges: Offsets = {}
        for left, right in itertools.pairwise(entries):
            if left["interval"][1] > right["interval"][0]:
                raise ViolationError(f"I1: {left['interval']} and {right['interval']} overlap")
        reach: dict[tuple[str, int], int] = {}
        for entry in entries:
            if entry["committed"] is None:
                continue
            total = 0
            for topic, known in root["topics"].items():
                for p, origin in enumerate(known["origins"]):
                    start, end = (
                        ends[p][0]
                        if p < len(ends := boundaries[instant].get(topic, []))
                        else origin
                        for instant in entry["interval"]
                    )
                    if start > end or start < reach.get((topic, p), origin):
                        raise ViolationError(
                            f"I2: {topic}[{p}] of {entry['interval']} is {start}..{end}"
                        )
                    reach[topic, p] = end
                    total += end - start
                    if end > start:
                        ranges.setdefault((topic, p), []).append((start, end))
            if sum(entry["committed"]["totals"]) != total:
                raise ViolationError(
                    f"I7: the account of {entry['interval']} is {entry['committed']['totals']}"
                )
        return ranges

    def _adopted(
        self, root: dict[str, Any], entries: list[dict[str, Any]], boundaries: dict[str, Any]
    ) -> None:
        """Check that a closed topic stays at its end, and that its rows are never replaced by another read."""
        closed = {t: k["closed"] for t, k in root["topics"].items() if k.get("closed")}
        if len(closed) > self.adoptions:
            self.adoptions = len(closed)
            self.granted_before |= {
                e["granted"]["plan"] for e in self.entries_before if e["granted"] is not None
            }
        then = {tuple(e["interval"]): e["committed"] for e in self.entries_before}
        for topic, end in closed.items():
            known = root["topics"][topic]["origins"]
            offsets: dict[str, list[int]] = {}
            for instant, positions in boundaries.items():
                stored = [offset for offset, _ in positions.get(topic, [])]
                offsets[instant] = stored + known[len(stored) :]
                if instant > end["since"] and offsets[instant] != end["ends"]:
                    raise ViolationError(
                        f"A1: {topic} ended at {end}, the boundary at {instant} is {stored}"
                    )
            for entry in entries:
                start, stop = entry["interval"]
                old, new = then.get((start, stop)), entry["committed"]
                if old is None or new is None or old["plan"] == new["plan"]:
                    continue
                has_rows = offsets[start] != offsets[stop]
                if has_rows and start < end["since"] and new["plan"] not in self.granted_before:
                    raise ViolationError(
                        f"A2: rows of {topic} in {entry['interval']} were replaced"
                    )

    def _table(self, name: str, table: dict[str, Any], committed: Offsets) -> None:
        in_table: Offsets = {}
        if table["metadata"] is not None:
            for topic, p, start, end in self._rows(name, table["metadata"]):
                in_table.setdefault((topic, p), []).append((start, end))
        for place in set(in_table) | set(committed):
            if sorted(in_table.get(place, [])) != sorted(committed.get(place, [])):
                raise ViolationError(
                    f"I1/I8: table {name} has {place} {sorted(in_table.get(place, []))}, "
                    f"the ledger {sorted(committed.get(place, []))}"
                )

    def _history(self, entries: list[dict[str, Any]]) -> None:
        now = {tuple(e["interval"]): e for e in entries}
        for earlier in self.entries_before:
            if earlier["committed"] is None:
                continue
            entry = now.get(tuple(earlier["interval"]))
            if entry is None or entry["committed"] is None:
                raise ViolationError(f"I4: committed {earlier['interval']} is gone")
        then = {tuple(e["interval"]): e for e in self.entries_before}
        for entry in entries:
            new = entry["committed"]
            before = then.get(tuple(entry["interval"]))
            old = before["committed"] if before else None
            if new is None or (old is not None and old["plan"] == new["plan"]):
                continue
            granted = before["granted"] if before else None
            at_once = sum(new["totals"]) == 0
            if not at_once and (granted is None or granted["plan"] != new["plan"]):
                raise ViolationError(
                    f"I5: {entry['interval']} committed by a plan that was not granted"
                )
            if old is not None and new["generation"] <= old["generation"]:
                raise ViolationError(f"I5: generation of {entry['interval']} went back")
