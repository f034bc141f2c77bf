"""Stages what a commit does to a table: writes new Iceberg metadata under fresh names that nothing refers to yet.

Only a swap of the root publishes the metadata. A rebase stages again from the new root, and gc deletes the old files.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from uuid import UUID

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table import CommitTableResponse, Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSnapshotUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    TableRequirement,
    TableUpdate,
    UpdatesAndRequirements,
    UpdateTableMetadata,
    update_table_metadata,
)

from tallystick.errors import IdentityChanged, TallystickError
from tallystick.format import keys
from tallystick.format.canonical import corrupt
from tallystick.format.columns import with_parts
from tallystick.format.report import FileReport
from tallystick.protocol.compacting import Positions
from tallystick.runtime import Runtime
from tallystick.store import Store
from tallystick.tables.data_files import check_files, data_file
from tallystick.tables.file_io import StoreFileIO
from tallystick.tables.iceberg import (
    evolved_columns,
    iceberg_schema,
    optional_if_missing,
    partition_spec,
    schema_columns,
)
from tallystick.tables.snapshots import MANIFEST_BYTES, MANIFESTS_MERGED_FROM, FileChange, expire
from tallystick.tables.state import TableState
from tallystick.tables.transaction import TableTransaction
from tallystick.tables.upkeep import known_order, sort_order, upkeep_changes, upkeep_properties

TABLE_PROPERTIES = {
    # PyIceberg would delete old metadata right after commit_table, which is before the swap of the root.
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "false",
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
    TableProperties.MANIFEST_MIN_MERGE_COUNT: str(MANIFESTS_MERGED_FROM),
    TableProperties.MANIFEST_TARGET_SIZE_BYTES: str(MANIFEST_BYTES),
    # Only the swap retries, and it decides everything again.
    TableProperties.COMMIT_NUM_RETRIES: "0",
}
"""The properties of each table that are not declared."""


class IcebergTables:
    """The tables below one lake URI, with staging of their changes."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        """Take all file names and snapshot ids from `runtime.uuid`."""
        self._io = StoreFileIO(store, runtime)
        self._new_uuid = runtime.uuid

    def stage(
        self,
        state: TableState,
        *,
        add: Sequence[FileReport],
        drop: Collection[str],
        properties: Mapping[str, str],
        now: datetime,
        delete: Mapping[str, Positions] = MappingProxyType({}),
        sorted_by: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    ) -> str:
        """Write the metadata that follows `state` with these files added and dropped in one snapshot; return its key.

        If the table has metadata and there is nothing to add, drop, delete or evolve, return the current key. Snapshots
        that the table's upkeep does not keep leave the metadata; their files are left to gc.

        `drop` contains keys of live data files. `delete` contains the deleted positions of live or added files by key, in
        place of those that the file had before. `sorted_by` contains the ids of the columns by which added files are
        sorted, by key. `properties` go into the snapshot's summary. The snapshot's time is `now` (aware), or one
        millisecond after the table's last change if that is later, which happens when clocks disagree.

        Raises Corrupt if the metadata is unreadable or a file to drop is not live, IdentityChanged if the metadata has
        another uuid, location or format, SchemaChanged (I11), InvalidPipeline (partition rules), ReportRejected if a file
        does not fit the table, and StoreUnavailable.

        Safe to repeat: every file gets a fresh name, nothing is overwritten or deleted, and nothing is visible until a
        root names the key. Each call loads the table again, because PyIceberg changes a loaded table in place.
        """
        check_files(add, drop, table=state.name)
        # Statistics list every column of a file. A file without statistics does not show which columns it has.
        held = [{c.id for c in file.columns} for file in add if file.columns]
        state = replace(state, columns=optional_if_missing(state.columns, held))
        before = None if state.metadata is None else self._load(state, state.metadata)
        now_ms = (now - _EPOCH) // _MILLISECOND
        at_ms = now_ms if before is None else max(now_ms, before.last_updated_ms + 1)
        base = self._created(state, at_ms) if before is None else before
        changes, with_others = ((), ()) if before is None else _evolution(before, state)
        if state.metadata is not None and not (add or drop or delete or changes):
            return state.metadata
        changes = (*changes, *with_others)
        catalog = StagingCatalog(self._io, key=self._next_key(state), at_ms=at_ms)
        location = "" if state.metadata is None else self._io.location(state.metadata)
        table = Table((state.name,), base, location, self._io, catalog)
        transaction = TableTransaction(table)
        if changes:
            Evolution(transaction, changes).commit()
        if add or drop or delete:
            self._change_files(transaction, state.name, add, drop, delete, sorted_by, properties)
        if changes or add or drop or delete:
            expire(transaction, keep=state.upkeep.snapshots_kept, since_ms=_since_ms(state, at_ms))
            transaction.commit_transaction()
        else:  # a new and empty table, for which PyIceberg would write nothing
            catalog.commit_table(table, (), ())
        return catalog.key

    def _change_files(
        self,
        transaction: Transaction,
        table: str,
        add: Sequence[FileReport],
        drop: Collection[str],
        delete: Mapping[str, Positions],
        sorted_by: Mapping[str, tuple[int, ...]],
        properties: Mapping[str, str],
    ) -> None:
        metadata = transaction.table_metadata
        schema, spec = metadata.schema(), metadata.spec()
        added = [
            data_file(
                f,
                location=self._io.location(f.key),
                schema=schema,
                spec=spec,
                sort_order=known_order(metadata, sorted_by.get(f.key, ())),
            )
            for f in add
        ]
        FileChange(
            transaction,
            add=added,
            drop={self._io.location(key) for key in drop},
            uuids=(UUID(hex=self._new_uuid()), UUID(hex=self._new_uuid())),
            properties=properties,
            delete={self._io.location(key): positions for key, positions in delete.items()},
            new_deletes=lambda: self._io.location(keys.deletes(table, self._new_uuid())),
        ).commit()

    def _load(self, state: TableState, key: str) -> TableMetadata:
        metadata = load_metadata(self._io, key)
        found = (metadata.table_uuid, metadata.location, metadata.format_version)
        wanted = (UUID(hex=state.uuid), self._location(state), 2)
        if found != wanted:
            raise IdentityChanged(
                f"table {state.name}, {key}: expected table {wanted[0]} at {wanted[1]} (format 2) as in the root, found "
                f"{found[0]} at {found[1]} (format {found[2]}).",
                hint="find out who wrote it: only tallystick may write these tables. Nothing was changed.",
            )
        return metadata

    def _created(self, state: TableState, at_ms: int) -> TableMetadata:
        """Build the state before the first commit, which is never written; PyIceberg would assign its own column ids."""
        spec = partition_spec(state.columns, state.partition_by, table=state.name)
        order = sort_order(state.columns, state.upkeep.sort_by)
        return TableMetadataV2.model_validate(
            {
                "location": self._location(state),
                "table-uuid": UUID(hex=state.uuid),
                "last-updated-ms": at_ms,
                "last-column-id": max((c.id for c in with_parts(state.columns)), default=0),
                "schemas": [iceberg_schema(state.columns)],
                "current-schema-id": 0,
                "partition-specs": [spec],
                "default-spec-id": spec.spec_id,
                "last-partition-id": spec.last_assigned_field_id,
                "sort-orders": [order],
                "default-sort-order-id": order.order_id,
                "properties": {**TABLE_PROPERTIES, **upkeep_properties(state.upkeep)},
            }
        )

    def _location(self, state: TableState) -> str:
        return self._io.location(keys.table_prefix(state.name).rstrip("/"))

    def _next_key(self, state: TableState) -> str:
        number = 0
        if state.metadata is not None:
            digits = state.metadata.rsplit("/", 1)[-1].split("-", 1)[0]
            number = int(digits) + 1 if digits.isdecimal() else 0
        name = f"{number:05d}-{UUID(hex=self._new_uuid())}.metadata.json"
        return keys.check_metadata(f"{keys.metadata_prefix(state.name)}{name}", state.name)


class StagingCatalog(NoopCatalog):
    """A catalog for one commit: it writes the new metadata and publishes nothing."""

    def __init__(self, io: StoreFileIO, *, key: str, at_ms: int) -> None:
        super().__init__("tallystick")
        self.key = key
        self._io = io
        self._at_ms = at_ms

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Apply the updates and write metadata.json under this catalog's key, with this catalog's time.

        PyIceberg takes the time of a snapshot from its own clock. This method replaces it before it applies the update;
        the snapshot log and the table's last change get the same time.

        Safe to repeat: only with a new catalog, because a catalog is for one commit. Its key is fresh and nothing names
        it.
        """
        for requirement in requirements:
            requirement.validate(table.metadata)
        metadata = update_table_metadata(
            table.metadata,
            tuple(self._at_our_time(update) for update in updates),
            enforce_validation=True,
            metadata_location=table.metadata_location or None,
        ).model_copy(update={"last_updated_ms": self._at_ms})
        location = self._io.location(self.key)
        ToOutputFile.table_metadata(metadata, self._io.new_output(location))
        return CommitTableResponse.model_validate(
            {"metadata": metadata, "metadata-location": location}
        )

    def _at_our_time(self, update: TableUpdate) -> TableUpdate:
        if not isinstance(update, AddSnapshotUpdate):
            return update
        return AddSnapshotUpdate(
            snapshot=update.snapshot.model_copy(update={"timestamp_ms": self._at_ms})
        )


class Evolution(UpdateTableMetadata["Evolution"]):
    """An update to the root's schema, partition spec and upkeep. PyIceberg's UpdateSchema would assign its own ids."""

    def __init__(self, transaction: Transaction, changes: tuple[TableUpdate, ...]) -> None:
        super().__init__(transaction)
        self._changes = changes

    def _commit(self) -> UpdatesAndRequirements:
        return self._changes, ()


def load_metadata(io: StoreFileIO, key: str) -> TableMetadata:
    """Read one metadata.json. Raises Corrupt if it is gone or is not Iceberg metadata."""
    try:
        return FromInputFile.table_metadata(io.new_input(io.location(key)))
    except TallystickError:
        raise
    except (
        Exception
    ) as error:  # pydantic's, PyIceberg's and the JSON parser's errors have no common base class
        raise corrupt(
            io.location(key), f"expected Iceberg metadata ({type(error).__name__})"
        ) from error


def _since_ms(state: TableState, at_ms: int) -> int | None:
    """Return the time from which on the table's snapshots are kept in any case; None if there is no such time."""
    age = state.upkeep.snapshots_kept_for
    return None if age is None else at_ms - age // _MILLISECOND


def _evolution(
    metadata: TableMetadata, state: TableState
) -> tuple[tuple[TableUpdate, ...], tuple[TableUpdate, ...]]:
    """Return the updates for which metadata is written, and those that are written only together with something else."""
    changes: list[TableUpdate] = []
    current = schema_columns(metadata.schema())
    columns = evolved_columns(current, state)
    if columns != current:
        schema_id = max(schema.schema_id for schema in metadata.schemas) + 1
        schema: Schema = iceberg_schema(columns, schema_id=schema_id)
        changes += [
            AddSchemaUpdate(schema=schema),
            SetCurrentSchemaUpdate.model_validate({"schema-id": schema_id}),
        ]
    known: Sequence[PartitionSpec] = metadata.partition_specs
    spec = partition_spec(columns, state.partition_by, table=state.name, known=known)
    if all(spec.spec_id != old.spec_id for old in known):
        changes.append(AddPartitionSpecUpdate(spec=spec))
    if spec.spec_id != metadata.default_spec_id:
        changes.append(SetDefaultSpecUpdate.model_validate({"spec-id": spec.spec_id}))
    upkeep = upkeep_changes(metadata, state.upkeep, columns, fixed=TABLE_PROPERTIES)
    return (*changes, *upkeep.due), upkeep.with_others


_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_MILLISECOND = timedelta(milliseconds=1)
