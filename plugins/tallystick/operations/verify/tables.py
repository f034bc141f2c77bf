"""Compares each table's Iceberg metadata with the files that the records of committed intervals added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from tallystick.errors import Corrupt
from tallystick.format.columns import successor, with_parts
from tallystick.format.root import RootTable
from tallystick.operations.verify.evidence import Case, Evidence, Unreadable
from tallystick.operations.verify.places import Places, shared_files

if TYPE_CHECKING:
    from tallystick.tables.reading import LiveFile


@dataclass(slots=True, kw_only=True)
class TableContents:
    """The live files of one table by key, those listed twice, and those that the records added, with the interval."""

    table: str
    readable: bool = True
    files: dict[str, LiveFile] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)
    expected: dict[str, str] = field(default_factory=dict)


def read_tables(evidence: Evidence) -> dict[str, TableContents]:
    """Read the live files of every table from its metadata and manifests. No data file is opened."""
    tables = evidence.root.tables
    held: dict[str, TableContents] = {}
    for number, (name, table) in enumerate(sorted(tables.items())):
        evidence.watch("tables", number, len(tables))
        held[name] = _read(evidence, name, table)
    evidence.watch("tables", len(tables), len(tables))
    return held


def _read(evidence: Evidence, name: str, table: RootTable) -> TableContents:
    # Imported here, because the import of PyIceberg takes a third of a second.
    from tallystick.tables.reading import live_files

    held = TableContents(table=name)
    if table.metadata is None:
        return held
    try:
        _check_schemas(evidence, name, table, table.metadata)
        for file in live_files(evidence.lake.store, table.metadata):
            if file.key in held.files:
                held.twice.append(file.key)
            held.files[file.key] = file
    except (
        Corrupt,
        ValueError,
    ) as error:  # ValueError: a schema with columns that no tallystick table has
        held.readable = False
        why = error.message if isinstance(error, Corrupt) else str(error)
        evidence.unreadable(table.metadata, "table metadata", Unreadable(why=why))
    else:
        evidence.checks["objects"].count("table metadata file")
    return held


def _check_schemas(evidence: Evidence, name: str, table: RootTable, metadata: str) -> None:
    """Check that the metadata has the root's table uuid, and that all its schemas use the root's column ids (I11)."""
    from tallystick.tables.iceberg import schema_columns
    from tallystick.tables.reading import static_table

    check = evidence.checks["columns"]
    found = static_table(evidence.lake.store, metadata).metadata
    check.differs(
        "I11",
        metadata,
        f"the uuid of table {name}",
        expected=UUID(hex=table.uuid),
        found=found.table_uuid,
    )
    known = {c.id: (c.name, c.text) for c in with_parts((*table.columns, *table.dropped))}
    for schema in found.schemas:
        for column in schema_columns(schema):
            # An older schema has the name and the type from before a rename or a wider type.
            if successor(column, table.columns, table.dropped, table.former_names) is None:
                check.found(
                    "I11",
                    f"table {name}, column id {column.id}",
                    "its meaning (name, type) in the table's metadata",
                    expected=known.get(column.id, "no such column"),
                    found=(column.name, column.text),
                )


def expect_files(
    evidence: Evidence, held: Mapping[str, TableContents], case: Case, places: Places
) -> None:
    """Add the files of a committed interval's record to the expected files of the tables, unless they were moved."""
    if case.record is None:
        return
    check = evidence.checks["tables"]
    for table, files in case.record.added.items():
        there = held.get(table)
        if there is None:
            check.found(
                "I8",
                case.where,
                "a table with rows",
                expected=f"{table} in the root",
                found="no such table",
            )
            continue
        for key in files:
            if key in places.moved:
                continue
            other = there.expected.setdefault(key, case.where)
            if other != case.where:
                check.found(
                    "I5", key, "the interval that added the file", expected=other, found=case.where
                )


def expect_shared_files(
    evidence: Evidence, held: Mapping[str, TableContents], places: Places
) -> None:
    """Add the shared files to the expected files of the tables, and check each: object, rows, deleted rows (I3, I13)."""
    objects, check = evidence.checks["objects"], evidence.checks["tables"]
    for table, key, one in shared_files(places):
        there = held.get(table)
        if there is None:
            continue
        there.expected[key] = "a compaction"
        check.count("shared file")
        objects.count("data file")
        file, listed = one.shared.file, evidence.listed.get(key)
        objects.differs(
            "I3",
            key,
            "the shared file's size and ETag",
            expected=f"{file.size_bytes} bytes, ETag {file.etag}",
            found="no object"
            if listed is None
            else f"{listed.size_bytes} bytes, ETag {listed.etag}",
        )
        if (order := one.shared.order) is not None:
            found = evidence.listed.get(order.key)
            objects.count("row order")
            objects.differs(
                "I3",
                order.key,
                f"the row order of {key}",
                expected=f"ETag {order.etag}",
                found="no object" if found is None else f"ETag {found.etag}",
            )
        live = there.files.get(key)
        if live is not None:
            check.differs(
                "I7", key, "rows in the table's metadata", expected=file.rows, found=live.rows
            )


def check_deleted(
    evidence: Evidence, held: Mapping[str, TableContents], places: Places, *, deep: bool
) -> None:
    """Check the deleted rows of every live file: exactly those of runs that are not living (I13).

    `deep`: read the delete files and compare each position; otherwise compare their numbers.
    """
    from tallystick.tables.reading import deleted_positions

    check = evidence.checks["tables"]
    for table, there in held.items():
        for key, file in there.files.items():
            one = places.shared.get(table, {}).get(key)
            ranges = one.deleted if one is not None else ()
            expected = sum(end - first for first, end in ranges)
            check.differs(
                "I13", key, "deleted rows of the file", expected=expected, found=file.deleted
            )
            if file.deletes is None:
                continue
            check.count("deleted row", file.deleted)
            if not deep:
                continue
            try:
                found = list(deleted_positions(evidence.lake.store, file))
            except Corrupt as error:
                why = Unreadable(why=error.message)
                evidence.unreadable(file.deletes, "position delete file", why)
                continue
            if one is None:
                continue  # a delete file that nothing explains; its number of rows is a finding already
            order = evidence.row_places(one.shared)
            if isinstance(order, Unreadable):
                continue  # a finding of the row order
            positions = order.positions(ranges).tolist()
            check.differ_in(
                "I13", file.deletes, "the deleted positions", expected=positions, found=found
            )


def check_tables(evidence: Evidence, held: Mapping[str, TableContents], *, complete: bool) -> None:
    """Check that the tables contain exactly the files that were added (I5, I8).

    `complete` is True if every record could be read. Only then is a file that no record names a finding.
    """
    check = evidence.checks["tables"]
    for name, there in held.items():
        if not there.readable:
            continue
        check.count("table")
        check.count("file", len(there.files))
        check.count("row", sum(f.rows for f in there.files.values()))
        for key in there.twice:
            check.found(
                "I8",
                key,
                f"how often table {name} lists the file",
                expected="once",
                found="more than once",
            )
        for key in sorted(there.expected.keys() - there.files.keys()):
            check.found(
                "I8",
                key,
                f"a file that {there.expected[key]} added to table {name}",
                expected="listed",
                found="not listed",
            )
        if not complete:
            continue
        for key in sorted(there.files.keys() - there.expected.keys()):
            check.found(
                "I5",
                key,
                f"a file that table {name} lists",
                expected="added by a committed interval's record",
                found="no committed record names it",
            )
