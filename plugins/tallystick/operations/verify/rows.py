"""The deep check: reads the lineage columns of every live data file and counts offsets.

It proves the following for each record-level table and each committed interval, from the rows and not from reports:

- Every row's offset is in a range that this interval's plan could read.
- No offset occurs twice (for `repeats`: no offset occurs in the files of two tasks).
- No offset occurs both in the table and in the dead letters.
- There are no more offsets than decoded records, and for `every_record` exactly as many, also in intervals whose plan did
  not contain the table.
- The dead letters are exactly the accounted ones.

Ranges of different intervals share no offset (the tiling check), so no record has rows in two intervals.

It does not prove the values of other columns, rows of tables that aggregate, or that a transform that drops records does
so on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tallystick.errors import InvalidRequest
from tallystick.format.compaction import SharedFile
from tallystick.format.offsets import OffsetRange
from tallystick.format.report import FileReport, RangeAccount
from tallystick.operations.verify.evidence import Case, Evidence, Unreadable
from tallystick.operations.verify.intervals import holds_lineage
from tallystick.operations.verify.places import Places
from tallystick.operations.verify.proof import Demands, Ongoing
from tallystick.pipeline import DEAD_LETTERS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Offsets = NDArray[np.int64]

Place = tuple[str, int]
SHARED_FILES_KEPT = 8
COLUMNS = ["_topic", "_kafka_partition", "_offset"]


@dataclass(slots=True, kw_only=True)
class TableSums:
    """Sums over all intervals of one table."""

    rows: int = 0
    offsets: int = 0
    records: int = 0
    complete: bool = True


@dataclass(slots=True)
class RowsCheck:
    """The rows check over all intervals."""

    evidence: Evidence
    demands: Demands
    sums: dict[str, TableSums] = field(default_factory=dict)
    places: Places = field(default_factory=Places)
    # The shared files of the last intervals, by key: their runs follow each other in time.
    _shared: dict[str, Any] = field(default_factory=dict)

    @property
    def check(self) -> Ongoing:
        """The check that collects the findings."""
        return self.evidence.checks["rows"]

    def check_interval(self, case: Case) -> None:
        """Read the interval's files of every record-level table and check them."""
        plan, report = case.plan, case.report
        if plan is None or report is None:
            return
        accounts = {(a.topic, a.partition): a for a in report.accounts}
        readable = {(t.name, p): r.readable for t in plan.topics for p, r in enumerate(t.ranges)}
        dead: dict[Place, Offsets] = {}
        # A table that this plan does not contain, or contains as an aggregate, has none of the interval's offsets.
        tables = {t.name for t in plan.tables if holds_lineage(plan, t.name)}
        unknown = _record_level(self.evidence) - tables
        # Dead letters first: the other tables are compared with them.
        for table in sorted(tables | unknown, key=lambda name: (name != DEAD_LETTERS, name)):
            files = [f for f in report.files if f.table == table and table in tables]
            found = self._read(files, readable)
            where = f"{case.where} table {table}"
            unique = self._once(where, table, found)
            if table == DEAD_LETTERS:
                dead = unique
                self._dead_as_accounted(where, unique, accounts)
            else:
                self._not_in_both(where, unique, dead)
                self._no_more_than_records(where, table, unique, accounts)
            self._sum(table, found, unique, accounts)

    def remarks(self) -> tuple[str, ...]:
        """Return one sentence per table: its rows, its offsets, and if it contains every record."""
        sentences: list[str] = []
        for table, sums in sorted(self.sums.items()):
            kind = "dead letters" if table == DEAD_LETTERS else "decoded records"
            whole = "all of them" if sums.complete else "not all of them"
            sentences.append(
                f"{table}: {sums.rows} rows of {sums.offsets} offsets; {sums.records} {kind}, {whole}"
            )
        return tuple(sentences)

    # ------------------------------------------------------------ reading

    def _read(
        self, files: Iterable[FileReport], readable: Mapping[Place, OffsetRange]
    ) -> dict[Place, dict[str, list[Offsets]]]:
        """Return the offsets by topic and partition, and by the task that wrote them."""
        found: dict[Place, dict[str, list[Offsets]]] = {}
        for file in files:
            by_place = self._read_file(file)
            if by_place is None:
                continue
            self._as_reported(file, by_place)
            for place, offsets in by_place.items():
                self._inside(file, place, offsets, readable.get(place))
                found.setdefault(place, {}).setdefault(_task(file.key), []).append(offsets)
        return found

    def _read_file(self, file: FileReport) -> dict[Place, Offsets] | None:
        moved = self.places.moved.get(file.key)
        if moved is None:
            rows = self._lineage_of(file.key)
        else:
            rows = self._lineage_of_shared(moved.shared)
            if rows is not None:
                rows = rows.slice(moved.placed.first, moved.placed.run.rows)
        if rows is None:
            return None
        self.check.count("file")
        self.check.count("row", rows.num_rows)
        nulls = sum(rows.column(name).null_count for name in rows.column_names)
        if nulls:
            self.check.found(
                "I1",
                file.key,
                "lineage of its rows",
                expected=f"{COLUMNS} without nulls",
                found=f"{nulls} nulls",
            )
            return None
        return _by_place(rows)

    def _lineage_of_shared(self, shared: SharedFile) -> Any:
        """Return the lineage columns of a shared file in the order of its row numbers."""
        key = shared.file.key
        if key not in self._shared:
            while len(self._shared) >= SHARED_FILES_KEPT:
                del self._shared[next(iter(self._shared))]
            rows, places = self._lineage_of(key), self.evidence.row_places(shared)
            if isinstance(places, Unreadable):
                assert shared.order is not None  # otherwise nothing is read
                self.evidence.unreadable(shared.order.key, "row order", places)
                rows = None
            elif rows is not None and len(rows) == shared.file.rows:
                rows = places.numbered(rows)
            self._shared[key] = rows
        return self._shared[key]

    def _lineage_of(self, key: str) -> Any:
        """Return the lineage columns of a data file; None if it is gone (the objects check finds it) or unreadable."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        stored = self.evidence.lake.store.get(key)
        if stored is None:
            return None
        try:
            return pq.read_table(pa.BufferReader(stored.body), columns=COLUMNS)
        except (pa.ArrowException, OSError) as error:
            why = str(error).splitlines()[0]
            self.check.found(
                "I3", key, "the data file's content", expected="readable Parquet", found=why
            )
            return None

    def _as_reported(self, file: FileReport, by_place: Mapping[Place, Offsets]) -> None:
        rows = sum(len(offsets) for offsets in by_place.values())
        self.check.differs(
            "I7", file.key, "rows in the file and in its report", expected=file.rows, found=rows
        )
        reported = sorted(
            (line.topic, line.partition, line.first, line.last) for line in file.lineage
        )
        found = sorted((t, p, int(o.min()), int(o.max())) for (t, p), o in by_place.items())
        self.check.differs(
            "I1", file.key, "lineage in the file and in its report (topic, partition, first, last)",
            expected=reported, found=found,
        )  # fmt: skip

    def _inside(
        self, file: FileReport, place: Place, offsets: Offsets, span: OffsetRange | None
    ) -> None:
        outside = (
            offsets if span is None else offsets[(offsets < span.start) | (offsets >= span.end)]
        )
        if len(outside):
            self.check.found(
                "I1",
                file.key,
                f"{len(outside)} rows of {place[0]}[{place[1]}]",
                expected=f"offsets inside {span}",
                found=int(outside.min()),
            )

    # ------------------------------------------------------------ checking

    def _once(
        self, where: str, table: str, found: Mapping[Place, Mapping[str, list[Offsets]]]
    ) -> dict[Place, Offsets]:
        """Check that no offset occurs twice, and return each offset once."""
        import numpy as np

        unique: dict[Place, Offsets] = {}
        for (topic, partition), tasks in found.items():
            parts = [np.concatenate(files) for files in tasks.values()]
            if table in self.demands.repeats:
                parts = [np.unique(part) for part in parts]
            offsets, counts = np.unique(np.concatenate(parts), return_counts=True)
            twice = offsets[counts > 1]
            if len(twice):
                self.check.found(
                    "I1",
                    where,
                    f"{len(twice)} offsets of {topic}[{partition}] have several rows",
                    expected=f"offset {int(twice[0])} once",
                    found=f"{int(counts[counts > 1][0])} times",
                )
            unique[topic, partition] = offsets
        return unique

    def _dead_as_accounted(
        self, where: str, unique: Mapping[Place, Offsets], accounts: Mapping[Place, RangeAccount]
    ) -> None:
        for place, account in accounts.items():
            found = len(unique.get(place, ()))
            what = f"dead letters of {place[0]}[{place[1]}]"
            self.check.differs("I7", where, what, expected=account.dead_letters, found=found)

    def _not_in_both(
        self, where: str, unique: Mapping[Place, Offsets], dead: Mapping[Place, Offsets]
    ) -> None:
        import numpy as np

        for place in unique.keys() & dead.keys():
            both = np.intersect1d(unique[place], dead[place], assume_unique=True)
            if len(both):
                self.check.found(
                    "I7",
                    where,
                    f"{len(both)} offsets of {place[0]}[{place[1]}]",
                    expected="a row or a dead letter",
                    found=f"offset {int(both[0])} is both",
                )

    def _no_more_than_records(
        self,
        where: str,
        table: str,
        unique: Mapping[Place, Offsets],
        accounts: Mapping[Place, RangeAccount],
    ) -> None:
        for place, account in accounts.items():
            found = len(unique.get(place, ()))
            what = f"offsets of {place[0]}[{place[1]}] with rows"
            if table in self.demands.every_record:
                self.check.differs("I7", where, what, expected=account.records, found=found)
            elif found > account.records:
                self.check.found(
                    "I7", where, what, expected=f"at most {account.records}", found=found
                )

    def _sum(
        self,
        table: str,
        found: Mapping[Place, Mapping[str, list[Offsets]]],
        unique: Mapping[Place, Offsets],
        accounts: Mapping[Place, RangeAccount],
    ) -> None:
        sums = self.sums.setdefault(table, TableSums())
        expected = {
            p: a.dead_letters if table == DEAD_LETTERS else a.records for p, a in accounts.items()
        }
        sums.rows += sum(
            len(part) for tasks in found.values() for files in tasks.values() for part in files
        )
        sums.offsets += sum(len(offsets) for offsets in unique.values())
        sums.records += sum(expected.values())
        sums.complete &= all(
            len(unique.get(place, ())) == count for place, count in expected.items()
        )


def _by_place(rows: Any) -> dict[Place, Offsets]:
    import pyarrow.compute as pc

    found: dict[Place, Offsets] = {}
    for topic in pc.unique(rows.column("_topic")).to_pylist():
        of_topic = rows.filter(pc.equal(rows.column("_topic"), topic))
        for partition in pc.unique(of_topic.column("_kafka_partition")).to_pylist():
            mine = of_topic.filter(pc.equal(of_topic.column("_kafka_partition"), partition))
            found[topic, partition] = mine.column("_offset").to_numpy()
    return found


def _task(key: str) -> str:
    """Return the task that wrote a file: `<task>-<uuid>.parquet`."""
    return key.rsplit("/", 1)[-1].rsplit("-", 1)[0]


def _record_level(evidence: Evidence) -> set[str]:
    """Return the root's tables whose rows each name their record. A table that aggregates has no such columns."""
    return {
        name
        for name, table in evidence.root.tables.items()
        if {column.name for column in table.columns} >= set(COLUMNS)
    }


def check_demands(evidence: Evidence, demands: Demands) -> None:
    """Refuse demands for tables that the lake lacks or that this check does not cover. Raises InvalidRequest."""
    known = evidence.root.tables.keys()
    checkable = _record_level(evidence) - {DEAD_LETTERS}
    names = ", ".join(sorted(checkable)) or "none yet"
    hint = f"name a table whose rows each come from one record: {names}."
    for table in sorted((demands.every_record | demands.repeats) - checkable):
        if table not in known:
            message = f"the lake has no table {table!r}."
        elif table == DEAD_LETTERS:
            message = f"{table} has no decoded records; that it is complete is always checked."
        else:
            message = (
                f"table {table} aggregates: its rows do not name the records that they come from."
            )
        raise InvalidRequest(message, hint=hint)
