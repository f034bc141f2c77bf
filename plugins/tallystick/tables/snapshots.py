"""Makes one snapshot per commit, with merged manifests, regardless of what it adds and drops; expires old snapshots.

The only module that uses PyIceberg's snapshot producers. Their names are private, hence the version pin below 0.13.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from uuid import UUID

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
)
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update.snapshot import ExpireSnapshots, _MergeAppendFiles
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.utils.concurrent import ExecutorFactory

from tallystick.errors import Corrupt, TallystickError
from tallystick.format.canonical import corrupt
from tallystick.format.upkeep import SNAPSHOTS_MAX
from tallystick.protocol.compacting import Positions
from tallystick.tables.deletes import DeletesManifestWriter, target_of, write_deletes

MANIFESTS_MERGED_FROM = 50
MANIFEST_BYTES = 300_000


def manifests(io: FileIO, snapshot: Snapshot | None) -> list[ManifestFile]:
    """Read the manifest list of a snapshot; return an empty list if there is no snapshot.

    Raises Corrupt naming the list if it is unreadable, or if its number of data files is not the snapshot's: an Avro file
    that was cut off at a block boundary reads as a shorter file without an error. Does not use `Snapshot.manifests`,
    because its cache for the whole process would confuse two stores of the same name.
    """
    if snapshot is None:
        return []
    try:
        found = list(read_manifest_list(io.new_input(snapshot.manifest_list)))
    except TallystickError:
        raise
    except Exception as error:  # any error of the Avro reader
        raise corrupt(
            snapshot.manifest_list, f"expected a manifest list ({type(error).__name__}: {error})"
        ) from error
    for kind, content in (("data", ManifestContent.DATA), ("delete", ManifestContent.DELETES)):
        wanted = snapshot.summary[f"total-{kind}-files"] if snapshot.summary else None
        files = sum(_live_count(m) for m in found if m.content == content)
        if wanted != str(files):
            raise corrupt(
                snapshot.manifest_list,
                f"expected {wanted} {kind} files as in its snapshot, found {files}",
            )
    return found


def entries(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """Read the live entries of a manifest. Raises Corrupt naming it if it is unreadable or its list has another count."""
    try:
        found = manifest.fetch_manifest_entry(io, discard_deleted=True)
    except TallystickError:
        raise
    except Exception as error:  # any error of the Avro reader
        raise corrupt(
            manifest.manifest_path, f"expected a manifest ({type(error).__name__}: {error})"
        ) from error
    if len(found) != _live_count(manifest):
        raise corrupt(
            manifest.manifest_path,
            f"expected {_live_count(manifest)} files as in its list, found {len(found)}",
        )
    return found


def _live_count(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def holds_files(manifest: ManifestFile) -> bool:
    """Return True if a manifest has live entries. One with only deletions matters only to its own snapshot."""
    return _live_count(manifest) > 0


class FileChange(_MergeAppendFiles):
    """A snapshot producer that adds and drops data files in one snapshot, so that no reader sees half of a replacement.

    `delete`: the deleted positions of data files by location, in place of those that the file had before. A data file
    that is dropped loses its delete file. PyIceberg's own overwrite does not merge manifests and reads each of them
    twice; its append drops nothing; neither can write delete files.
    """

    def __init__(
        self,
        transaction: Transaction,
        *,
        add: Sequence[DataFile],
        drop: Collection[str],
        uuids: tuple[UUID, UUID],
        properties: Mapping[str, str],
        delete: Mapping[str, Positions] = MappingProxyType({}),
        new_deletes: Callable[[], str] | None = None,
    ) -> None:
        # Readers of appends only must not take moved rows for new ones.
        removes = bool(drop or delete)
        operation = (
            Operation.APPEND if not removes else Operation.OVERWRITE if add else Operation.DELETE
        )
        super().__init__(
            operation=operation,
            transaction=transaction,
            io=transaction._table.io,
            commit_uuid=uuids[0],
            snapshot_properties=dict(properties),
        )
        # The id is an argument and not PyIceberg's random number; 63 bits of a fresh uuid are equally unique.
        self._snapshot_id = uuids[1].int & (2**63 - 1)
        self._drop = frozenset(drop)
        self._delete = delete
        self._new_deletes = new_deletes
        self._added_deletes: list[DataFile] = []
        self._removed_deletes: list[ManifestEntry] = []
        self._kept_deletes: list[ManifestEntry] = []
        self._kept: list[tuple[ManifestFile, list[ManifestEntry] | None]] = []
        for file in add:
            self.append_data_file(file)

    def _build_delete_files_partition_predicate(self) -> None:
        """Do nothing: files are dropped by name, all manifests are read, and no predicate prunes them."""

    def _deleted_entries(self) -> list[ManifestEntry]:
        """Read the live manifests once; return the entries to drop, and keep the entries of each manifest that stay.

        Raises Corrupt if a file to drop is not live, because then the ledger and the table disagree.
        """
        head = self._transaction.table_metadata.snapshot_by_name(self._target_branch)
        live = [m for m in manifests(self._io, head) if holds_files(m)]
        if not (self._drop or self._delete):
            self._kept = [(manifest, None) for manifest in live]
            return []
        found = ExecutorFactory.get_or_create().map(lambda m: entries(self._io, m), live)
        dropped: list[ManifestEntry] = []
        targets = {file.file_path: file for file in self._added_data_files}
        for manifest, inside in zip(live, found, strict=True):
            gone: list[ManifestEntry] = []
            stay: list[ManifestEntry] = []
            for entry in inside:
                (gone if self._is_gone(entry) else stay).append(entry)
            if manifest.content == ManifestContent.DATA:
                targets |= {e.data_file.file_path: e.data_file for e in inside}
                dropped += gone
            else:
                # PyIceberg does not merge manifests of delete files: all of them are written into one here.
                self._removed_deletes += gone
                self._kept_deletes += stay
                continue
            if stay:
                self._kept.append((manifest, stay if gone else None))
        self._check_dropped(dropped)
        self._write_deletes(targets)
        removed = [e.data_file for e in self._removed_deletes]
        self._deleted_data_files = {*(e.data_file for e in dropped), *removed}
        return [_with_status(e, ManifestEntryStatus.DELETED, self._snapshot_id) for e in dropped]

    def _is_gone(self, entry: ManifestEntry) -> bool:
        """Return True for a dropped data file, and for a delete file whose data file is dropped or has other deletes."""
        if entry.data_file.content == DataFileContent.DATA:
            return entry.data_file.file_path in self._drop
        target = target_of(entry)
        return target in self._drop or target in self._delete

    def _write_deletes(self, targets: Mapping[str, DataFile]) -> None:
        """Write one delete file per changed data file.

        Safe to repeat: names are new, and only a root makes the files visible.
        """
        for location, positions in self._delete.items():
            file = targets.get(location)
            if file is None or self._new_deletes is None:
                raise Corrupt(
                    f"{location}: expected the file in the table, because rows of it are deleted, found none.",
                    hint="run `tally verify`: the ledger and this table disagree. Nothing was changed.",
                )
            if positions:
                written = write_deletes(
                    self._io,
                    self._new_deletes(),
                    target=location,
                    positions=positions,
                    spec_id=file.spec_id,
                    partition=file.partition,
                )
                self._added_deletes.append(written)

    def _manifests(self) -> list[ManifestFile]:
        """Return the manifests of data files, merged, and those of delete files."""
        return [*super()._manifests(), *self._delete_manifests()]

    def _delete_manifests(self) -> list[ManifestFile]:
        changed = [
            *(
                _with_status(e, ManifestEntryStatus.DELETED, self._snapshot_id)
                for e in self._removed_deletes
            ),
            *(
                _with_status(e, ManifestEntryStatus.EXISTING, e.snapshot_id)
                for e in self._kept_deletes
            ),
        ]
        added = [
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=self._snapshot_id,
                sequence_number=None,
                file_sequence_number=None,
                data_file=file,
            )
            for file in self._added_deletes
        ]
        written: list[ManifestFile] = []
        for spec_id in sorted({e.data_file.spec_id for e in (*changed, *added)}):
            with self._deletes_writer(spec_id) as writer:
                for entry in changed:
                    if entry.data_file.spec_id == spec_id:
                        writer.add_entry(entry)
                for entry in added:
                    if entry.data_file.spec_id == spec_id:
                        writer.add(entry)
            written.append(writer.to_manifest_file())
        return written

    def _deletes_writer(self, spec_id: int) -> DeletesManifestWriter:
        return DeletesManifestWriter(
            self.spec(spec_id),
            self.schema(),
            self.new_manifest_output(),
            self._snapshot_id,
            self._compression,
        )

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        """Return the summary with the delete files counted, too."""
        data = self._added_data_files
        self._added_data_files = [*data, *self._added_deletes]
        try:
            return super()._summary(snapshot_properties)
        finally:
            self._added_data_files = data

    def _check_dropped(self, dropped: Sequence[ManifestEntry]) -> None:
        paths = [e.data_file.file_path for e in dropped]
        missing = sorted(self._drop.difference(paths))
        twice = (
            sorted({p for p in paths if paths.count(p) > 1})
            if len(set(paths)) != len(paths)
            else []
        )
        if missing or twice:
            raise Corrupt(
                f"{(missing or twice)[0]}: expected the dropped file once in the table, found it "
                f"{'twice' if twice else 'missing'}.",
                hint="run `tally verify`: the ledger and this table disagree. Nothing was changed.",
            )

    def _existing_manifests(self) -> list[ManifestFile]:
        return [
            manifest if stay is None else self._rewritten(manifest, stay)
            for manifest, stay in self._kept
        ]

    def _rewritten(self, manifest: ManifestFile, stay: Sequence[ManifestEntry]) -> ManifestFile:
        with self.new_manifest_writer(self.spec(manifest.partition_spec_id)) as writer:
            for entry in stay:
                writer.add_entry(
                    _with_status(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id)
                )
        return writer.to_manifest_file()


def expire(transaction: Transaction, *, keep: int, since_ms: int | None = None) -> None:
    """Expire old snapshots, in the same transaction. Changes metadata only: deletes no file.

    The newest `keep` stay, and those that were made at or after `since_ms`, at most SNAPSHOTS_MAX in all.
    """
    # The times of a table's snapshots ascend, but for the one of this transaction, which has PyIceberg's time until the
    # commit. It is the last one, and is never expired.
    listed = sorted(transaction.table_metadata.snapshots, key=lambda s: s.sequence_number or 0)
    if since_ms is not None:
        young = next((i for i, s in enumerate(listed) if s.timestamp_ms >= since_ms), len(listed))
        keep = min(max(keep, len(listed) - young), SNAPSHOTS_MAX)
    old = [s.snapshot_id for s in listed[:-keep]]
    if old:
        ExpireSnapshots(transaction).by_ids(old).commit()


def _with_status(
    entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None
) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )
