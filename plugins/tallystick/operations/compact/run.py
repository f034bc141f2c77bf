"""Runs a compaction: choose, grant, write shared files, publish."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from itertools import islice
from typing import Any, Protocol

from tallystick.format import keys
from tallystick.format.compaction import Compaction, CompactionGrant, SharedFile
from tallystick.lake import Lake, NoUpdate, Snapshot, Update
from tallystick.lake.room import RoomGiver, Turn
from tallystick.operations.commit.attempt import TableStager
from tallystick.operations.compact.choosing import (
    ChosenCompaction,
    CompactOptions,
    TableFiles,
    choose,
)
from tallystick.operations.compact.publish import PublishAttempt
from tallystick.runtime.version import VERSION

PUBLISHED_AT_ONCE = 20
"""Compactions of one swap: each swap is a snapshot of its tables, and may cost a commit a try."""
GRANT_MAX = timedelta(days=1)
GRANTS_MAX = 200
"""Compactions of one run: the next run makes the others."""


class SharedFileWriter(TableFiles, Protocol):
    """A reader of tables and writer of shared files: tallystick.operations.compact.local, tallystick.spark.compacting."""

    def write(
        self, chosen: ChosenCompaction, compaction: keys.CompactionId
    ) -> Iterator[SharedFile]:
        """Yield one shared file per group, in their order. Safe to repeat: every file has a fresh key."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedFiles:
    """The work on one table: files before and after, and their bytes and rows."""

    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows: int = 0

    def __add__(self, other: CompactedFiles) -> CompactedFiles:
        return CompactedFiles(
            files_before=self.files_before + other.files_before,
            files_after=self.files_after + other.files_after,
            bytes_before=self.bytes_before + other.bytes_before,
            bytes_after=self.bytes_after + other.bytes_after,
            rows=self.rows + other.rows,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactResult:
    """The result of one run. `left`: why compactions were not published; their files are left to gc.

    `dry_run`: nothing was written, and the bytes of the shared files are not known.
    """

    uri: str
    version: int
    tables: Mapping[str, CompactedFiles]
    left: Mapping[keys.CompactionKey, str]
    dry_run: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the result for programs."""
        return {
            "lake": self.uri,
            "version": self.version,
            "dry_run": self.dry_run,
            "tables": {name: asdict(one) for name, one in sorted(self.tables.items())},
            "left": dict(self.left),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CompactResult:
        """Read what `to_json` returned."""
        return cls(
            uri=value["lake"],
            version=value["version"],
            dry_run=value["dry_run"],
            tables={name: CompactedFiles(**one) for name, one in value["tables"].items()},
            left=value["left"],
        )


Watch = Callable[[str, int, int], None]
"""Called with what is written, the number of files written and their total."""


def compact(
    lake: Lake,
    tables: TableStager,
    writer: SharedFileWriter,
    options: CompactOptions,
    *,
    watch: Watch | None = None,
) -> CompactResult:
    """Rewrite small files of committed intervals into shared files, and publish them.

    Rows, accounts, generations and outputs of the intervals stay what they are, and each can still be replaced alone.
    Safe to repeat, also twice at once and together with commits and gc: a compaction is published once, by one swap, and
    only for files that are as they were read (`decide_compaction`); the files of the others are left to gc (C2, C9, C14).
    Raises InvalidRequest if a table is unknown, Corrupt if a file is gone or has other rows than its run, and the errors
    of the lake.
    """
    lake.prove()
    chosen = lake.read(lambda snapshot: choose(lake, snapshot, writer, options))[:GRANTS_MAX]
    done: dict[str, CompactedFiles] = {}
    left: dict[keys.CompactionKey, str] = {}
    if not chosen:
        version = lake.load_existing().root.version
        return CompactResult(uri=lake.store.uri, version=version, tables={}, left={})
    turn = RoomGiver(store=lake.store, runtime=lake.runtime)
    named = [(keys.compaction(one.table, lake.runtime.uuid()), one) for one in chosen]
    version = _grant(lake, [key for key, _ in named], turn)
    since = version
    total = sum(len(one.groups) for one in chosen)
    waiting = iter(named)
    written = 0
    while batch := list(islice(waiting, PUBLISHED_AT_ONCE)):
        staged: list[Compaction] = []
        for key, one in batch:
            staged.append(_stage(lake, writer, key, one))
            written += len(one.groups)
            if watch is not None:
                watch("shared files", written, total)
        swapped = lake.swap(PublishAttempt(lake, tables, staged, since=since).step, turn=turn)
        version = swapped.version
        left |= swapped.left
        for (key, one), compaction in zip(batch, staged, strict=True):
            if key in swapped.published:
                done[one.table] = done.get(one.table, CompactedFiles()) + _count(one, compaction)
    return CompactResult(uri=lake.store.uri, version=version, tables=done, left=left)


def would_compact(lake: Lake, tables: TableFiles, options: CompactOptions) -> CompactResult:
    """Return what `compact` would do now, as far as it is known before the files are written. Writes nothing."""
    chosen, version = lake.read(
        lambda snapshot: (choose(lake, snapshot, tables, options), snapshot.root.version)
    )
    found: dict[str, CompactedFiles] = {}
    for one in chosen[:GRANTS_MAX]:
        files = [file for group in one.groups for file in group.files]
        found[one.table] = found.get(one.table, CompactedFiles()) + CompactedFiles(
            files_before=len({file.key for file in files}),
            files_after=len(one.groups),
            bytes_before=sum(file.size_bytes for file in files),
            rows=sum(file.run.rows for file in files),
        )
    return CompactResult(uri=lake.store.uri, version=version, tables=found, left={}, dry_run=True)


def _grant(lake: Lake, compactions: Sequence[keys.CompactionKey], turn: Turn) -> int:
    """Swap in a root that names the compactions, so that gc keeps their files; return its version.

    Grants that are older than a day are cancelled: those of processes that were killed would add up in the root.
    Safe to repeat: the keys are new. A repeat after a lost reply finds them there (C9).
    """
    now = lake.runtime.now()

    def step(snapshot: Snapshot) -> Update[int] | NoUpdate[int]:
        root = snapshot.root
        granted = {grant.key for grant in root.compacting}
        if granted.issuperset(compactions):
            return NoUpdate(value=root.version)
        new = tuple(CompactionGrant(key=key, granted_at=now) for key in compactions)
        return Update(
            tables=root.tables,
            topics=root.topics,
            ledger=snapshot.around(()),
            value=root.version + 1,
            compacting=(*(g for g in root.compacting if now - g.granted_at < GRANT_MAX), *new),
        )

    return lake.swap(step, turn=turn)


def _stage(
    lake: Lake, writer: SharedFileWriter, key: keys.CompactionKey, chosen: ChosenCompaction
) -> Compaction:
    """Write the shared files and then the object that lists them.

    Safe to repeat: the key is of this run alone, and nothing reads the object before an entry names it (C2).
    """
    _, number = keys.compaction_parts(key)
    compaction = Compaction(
        key=key,
        pipeline=lake.load_existing().root.pipeline,
        uuid=chosen.state.uuid,
        columns=chosen.state.columns,
        partition_by=chosen.state.partition_by,
        files=tuple(writer.write(chosen, number)),
        library=VERSION,
    )
    lake.put_new(key, compaction.encode())
    return compaction


def _count(chosen: ChosenCompaction, compaction: Compaction) -> CompactedFiles:
    files = [file for group in chosen.groups for file in group.files]
    return CompactedFiles(
        files_before=len({file.key for file in files}),
        files_after=len(compaction.files),
        bytes_before=sum(file.size_bytes for file in files),
        bytes_after=sum(shared.file.size_bytes for shared in compaction.files),
        rows=sum(shared.file.rows for shared in compaction.files),
    )
