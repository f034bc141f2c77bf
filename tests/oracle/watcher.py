"""A concurrent reader: each root that it reads names complete intervals only, each once, the same in every table."""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import Any, Self

from botocore.exceptions import BotoCoreError, ClientError

from oracle.place import ROOT, Objects, Place
from oracle.problems import Problems
from oracle.reading import DEAD, LINEAGE, TOTALS, Ledger, LiveFile, Tables, done_in, read_ledger

_STOP_S = 60.0


class Watcher:
    """A thread that polls root.json every `every_s` seconds while it is open, and stores the violations.

    `poll` polls once, for tests that choose the moment. `unanswered` counts the polls that the store did not answer:
    they prove nothing. `roots` counts the different roots that were read.
    """

    def __init__(self, place: Place, every_s: float = 0.05) -> None:
        self._objects = Objects(place, timeout_s=5.0, attempts=1)
        self._tables = Tables(self._objects)
        self._every_s = every_s
        self._problems = Problems()
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self._etag: str | None = None
        self._version = 0
        self._record: str | None = None
        self._committed: dict[tuple[str, str], int] = {}
        self._records: dict[str, Any] = {}
        self._checked_files: set[str] = set()
        self.polls = self.roots = self.unanswered = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(_STOP_S)
        self.poll()
        self._objects.close()

    @property
    def violations(self) -> tuple[str, ...]:
        """The violations in any root that was read, the first counter-examples of each kind as text."""
        return self._problems.lines()

    @property
    def ok(self) -> bool:
        """True if no root that was read had a violation."""
        return not self.violations

    def poll(self) -> None:
        """Read the root, and if it has changed since the last poll, the snapshot that it names."""
        with self._lock:
            self.polls += 1
            try:
                self._poll()
            except (BotoCoreError, ClientError):
                self.unanswered += 1

    def _run(self) -> None:
        while not self._end.wait(self._every_s):
            try:
                self.poll()
            except Exception as error:  # a defect of the watcher must be reported
                self._problems.add(
                    "watcher", f"the watcher failed: {type(error).__name__}: {error}"
                )
                raise

    def _poll(self) -> None:
        try:
            stored = self._objects.get(ROOT, unless=self._etag)
        except FileNotFoundError:
            self._problems.add("root", f"{ROOT} existed (version {self._version}) and is gone")
            return
        if stored is None:
            return
        root = json.loads(stored[0])
        try:
            self._check(root)
        except FileNotFoundError as missing:
            self._add(root, f"{missing} is named and does not exist")
        except ValueError as error:
            self._add(root, str(error))
        self.roots += 1
        self._etag, self._version, self._record = stored[1], root["version"], root["record"]

    def _add(self, root: Any, text: str) -> None:
        self._problems.add("snapshot", f"version {root['version']}: {text}")

    def _check(self, root: Any) -> None:
        if root["version"] <= self._version:
            self._add(root, f"it follows version {self._version}")
        ledger = read_ledger(self._objects, root)
        self._check_history(root, ledger)
        live = {name: self._tables.live(t["metadata"]) for name, t in root["tables"].items()}
        expected = {name: Counter[str]() for name in live}
        for entry in ledger.committed():
            done = done_in(self._record_of(entry["committed"]["record"]), entry)
            if done is None or done["plan"] != entry["committed"]["plan"]:
                self._add(root, f"the record of {entry['interval']} does not contain its commit")
                continue
            for name, keys in done["added"].items():
                expected[name].update(keys)
        for name, files in live.items():
            self._check_table(root, name, files, expected[name])
        self._check_rows(root, ledger, live)

    def _check_table(
        self, root: Any, name: str, files: list[LiveFile], expected: Counter[str]
    ) -> None:
        live = Counter(file.key for file in files)
        for key in live - expected:
            self._add(root, f"table {name} has {key}, which is of no committed interval, or twice")
        for key in expected - live:
            self._add(root, f"table {name} does not have {key} of a committed interval")
        for file in files:
            if file.key in self._checked_files:
                continue
            self._checked_files.add(file.key)
            stored = self._objects.head(file.key)
            if stored is None or stored.size_bytes != file.size_bytes:
                self._add(
                    root,
                    f"table {name} names {file.key} ({file.size_bytes} bytes), in the store it is {stored}",
                )

    def _check_rows(self, root: Any, ledger: Ledger, live: dict[str, list[LiveFile]]) -> None:
        """Check that each table has as many rows per interval as the ledger: no interval is visible in part."""
        by_plan: dict[str, Counter[str]] = {name: Counter() for name in live}
        for name, files in live.items():
            for file in files:
                by_plan[name]["/".join(file.key.split("/data/")[-1].split("/")[:2])] += file.rows
        for entry in ledger.committed():
            plan = entry["committed"]["plan"].removeprefix("plans/").removesuffix(".json")
            totals = dict(zip(TOTALS, entry["committed"]["totals"], strict=True))
            for name, table in root["tables"].items():
                columns = {c["name"] for c in table["columns"]}
                if not columns.issuperset(LINEAGE):
                    continue
                committed = totals["dead_letters" if name == DEAD else "records"]
                if by_plan[name][plan] != committed:
                    self._add(
                        root,
                        f"table {name} has {by_plan[name][plan]} rows of {entry['interval']}, in the ledger {committed}",
                    )

    def _check_history(self, root: Any, ledger: Ledger) -> None:
        now = {
            (e["interval"][0], e["interval"][1]): e["committed"]["generation"]
            for e in ledger.committed()
        }
        for bounds, generation in self._committed.items():
            if now.get(bounds, 0) < generation:
                self._add(
                    root,
                    f"{bounds} was committed as generation {generation} and is now {now.get(bounds)}",
                )
        self._committed = now
        if not self._version:
            return  # the history before the first poll may have been collected
        key = root["record"]
        while key is not None and key != self._record:
            key = self._record_of(key)["parent"]
        if key != self._record:
            self._add(
                root,
                f"record {self._record} was the last one and is not in the history of {root['record']}",
            )

    def _record_of(self, key: str) -> Any:
        if key not in self._records:
            self._records[key] = self._objects.json(key)
        return self._records[key]
