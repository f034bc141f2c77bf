"""Which files and objects a lake has, how large they are, and why each is kept. Writes nothing.

What is kept is decided by gc's own marks, so that this answer and `tally gc` agree.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from tallystick.format import keys
from tallystick.lake import Lake, Snapshot
from tallystick.operations.gc.collecting import DOUBT_GRACE, PROBE_GRACE, grace_of
from tallystick.operations.gc.listing import Listing, Watch
from tallystick.operations.gc.marking import Marking, TableReach
from tallystick.operations.gc.result import Heap
from tallystick.operations.status.kept import (
    RULES,
    KeptBy,
    Rule,
    current_documents,
    pages_since,
)
from tallystick.operations.status.read import TableStatus, table_status

if TYPE_CHECKING:
    from tallystick.tables.files import FilesReader, ListedFiles

MB = 1_000_000
SIZES = (MB, 16 * MB, 128 * MB)
"""The limits between the classes of sizes: below the first, from one to the next, from the last one on."""

What = Literal["data file", "delete file", "manifest", "manifest list", "metadata file"] | keys.Kind
WHATS: tuple[What, ...] = (
    *("data file", "delete file", "manifest", "manifest list", "metadata file"),
    *(
        "root",
        "page",
        "record",
        "plan",
        "report",
        "claim",
        "compaction",
        "row order",
        "call",
        "scratch",
    ),
    *("probe", "foreign"),
)
"""In the order of an answer."""

_OF_TABLES: Mapping[keys.Kind, What] = {
    "data file": "data file",
    "shared file": "data file",
    "deletes": "delete file",
    "metadata": "metadata file",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObjects:
    """The objects of one sort that are kept by the same rule."""

    what: What
    rule: Rule
    heap: Heap


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesOfTable:
    """A table of the root with its files.

    `sizes`: the live data files by class of size (`SIZES`). `deletes`: how many delete files its current snapshot has.
    `snapshots` are those that its metadata lists, the oldest of `since`. `log`: how many earlier metadata files its
    metadata log names, and `log_kept` those that exist. `objects`: all objects of the table.
    """

    table: TableStatus
    sizes: tuple[Heap, ...]
    deletes: int
    snapshots: int
    since: datetime | None
    log: int
    log_kept: Heap
    objects: tuple[StoredObjects, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeFiles:
    """All objects of a lake. `objects`: those of no table of the root."""

    uri: str
    pipeline: str
    version: int
    reader_grace: timedelta
    tables: tuple[FilesOfTable, ...]
    objects: tuple[StoredObjects, ...]

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that keep any object, in the order of RULES."""
        groups = (self.objects, *(t.objects for t in self.tables))
        found = {one.rule for group in groups for one in group}
        return tuple(rule for rule in RULES if rule in found)


def read_files(
    lake: Lake, *, reader_grace: timedelta | None = None, watch: Watch | None = None
) -> LakeFiles:
    """Return all objects of the lake with the rule that keeps each, under its current root.

    `reader_grace`: that of gc, as it is run for this lake; None: gc's default for it. Costs a listing of the whole lake,
    each manifest of the snapshots and versions that are kept, and the ledger, as a gc run does. Raises RootVanished if
    there is no root, Corrupt if an object is damaged, and the errors of the store.
    """
    now = lake.runtime.now()
    see = watch or _silent
    # The listing comes first, as in gc: an object that a later swap publishes is not in it, and cannot look unneeded.
    with Listing(lake.store, probes_since=now - PROBE_GRACE, watch=see) as listing:

        def answer(snapshot: Snapshot) -> LakeFiles:
            from tallystick.tables.files import FilesReader  # PyIceberg is slow to import

            reader = FilesReader(lake.store)
            tables = _read_tables(reader, snapshot, see)
            grace = grace_of(snapshot.root, reader_grace)
            kept = _kept(lake, snapshot, tables, reader, listing, now=now, grace=grace)
            return _added_up(lake, snapshot, tables, listing, kept, grace=grace)

        return lake.read(answer)


def _read_tables(
    reader: FilesReader, snapshot: Snapshot, watch: Watch
) -> dict[str, ListedFiles | None]:
    tables = snapshot.root.tables
    found: dict[str, ListedFiles | None] = {}
    for number, (name, table) in enumerate(sorted(tables.items()), start=1):
        found[name] = None if table.metadata is None else reader.table_files(table.metadata)
        watch("tables", number, len(tables))
    return found


def _kept(
    lake: Lake,
    snapshot: Snapshot,
    tables: Mapping[str, ListedFiles | None],
    reader: FilesReader,
    listing: Listing,
    *,
    now: datetime,
    grace: timedelta,
) -> KeptBy:
    reach = _FirstReach(reader)
    marking = Marking(lake, reach)
    entries = snapshot.whole_ledger().entries
    marks = marking.marks(
        snapshot, entries, listing, since=now - grace, doubts_since=now - DOUBT_GRACE
    )
    read = [files for files in tables.values() if files is not None]
    documents = current_documents(lake, marking, snapshot, entries, listing)
    return KeptBy(
        marks.marked,
        entries,
        current=documents.union(*(files.current for files in read)),
        history=frozenset[str]().union(*(files.older for files in read)),
        grace=reach.first | pages_since(lake, snapshot, now - grace),
    )


class _FirstReach:
    """A reach that keeps its first answer: gc's marking asks for the root and the versions within the reader grace first.

    Later it asks for the commits that are not in the ledger, one after the other.
    """

    def __init__(self, reach: TableReach) -> None:
        self._reach = reach
        self._first: frozenset[str] | None = None

    @property
    def first(self) -> frozenset[str]:
        return self._first or frozenset()

    def reached(self, metadata: Collection[str]) -> frozenset[str]:
        found = self._reach.reached(metadata)
        if self._first is None:
            self._first = found
        return found


class _Sums:
    """Counts and bytes by table (None: of no table of the root), sort and rule."""

    def __init__(self) -> None:
        self._objects: Counter[tuple[str | None, What, Rule]] = Counter()
        self._bytes: Counter[tuple[str | None, What, Rule]] = Counter()

    def add(self, table: str | None, what: What, rule: Rule, size_bytes: int) -> None:
        self._objects[table, what, rule] += 1
        self._bytes[table, what, rule] += size_bytes

    def of(self, table: str | None) -> tuple[StoredObjects, ...]:
        found = [key for key in self._objects if key[0] == table]
        found.sort(key=lambda key: (WHATS.index(key[1]), RULES.index(key[2])))
        return tuple(
            StoredObjects(
                what=key[1],
                rule=key[2],
                heap=Heap(objects=self._objects[key], size_bytes=self._bytes[key]),
            )
            for key in found
        )


def _added_up(
    lake: Lake,
    snapshot: Snapshot,
    tables: Mapping[str, ListedFiles | None],
    listing: Listing,
    kept: KeptBy,
    *,
    grace: timedelta,
) -> LakeFiles:
    sums = _Sums()
    in_logs = {key: name for name, files in tables.items() if files for key in files.log}
    logs = dict.fromkeys(tables, Heap())
    for key, size_bytes in listing:
        table, what = _sort(key, tables)
        sums.add(table, what, kept.rule(key), size_bytes)
        if (logged := in_logs.get(key)) is not None:
            logs[logged] += Heap(objects=1, size_bytes=size_bytes)
    return LakeFiles(
        uri=lake.store.uri,
        pipeline=snapshot.root.pipeline,
        version=snapshot.root.version,
        reader_grace=grace,
        tables=tuple(
            _of_table(
                table_status(lake, name, snapshot.root.tables[name], count=False),
                files,
                logs[name],
                sums.of(name),
            )
            for name, files in tables.items()
        ),
        objects=sums.of(None),
    )


def _sort(key: str, tables: Mapping[str, ListedFiles | None]) -> tuple[str | None, What]:
    """Return the table of an object, None if the root has no such table, and what it is."""
    kind = keys.kind(key)
    if kind not in _OF_TABLES:
        return None, kind
    name = key.removeprefix(keys.TABLES_PREFIX).split("/", 1)[0]
    files = tables.get(name)
    table = name if name in tables else None
    if kind == "metadata" and not key.endswith(".metadata.json"):
        return table, "manifest list" if "/snap-" in key else "manifest"
    if files is not None and key in files.deletes:
        return table, "delete file"
    return table, _OF_TABLES[kind]


def _of_table(
    table: TableStatus,
    files: ListedFiles | None,
    log_kept: Heap,
    objects: tuple[StoredObjects, ...],
) -> FilesOfTable:
    sizes = [Heap()] * (len(SIZES) + 1)
    for size_bytes in files.data.values() if files else ():
        sizes[bisect_right(SIZES, size_bytes)] += Heap(objects=1, size_bytes=size_bytes)
    live = sum(sizes, Heap())
    return FilesOfTable(
        table=replace(
            table,
            rows=files.rows if files else 0,
            files=live.objects,
            size_bytes=live.size_bytes,
        ),
        sizes=tuple(sizes),
        deletes=len(files.deletes & files.current) if files else 0,
        snapshots=files.snapshots if files else 0,
        since=files.oldest_at if files else None,
        log=len(files.log) if files else 0,
        log_kept=log_kept,
        objects=objects,
    )


def _silent(what: str, done: int, total: int) -> None:
    del what, done, total
