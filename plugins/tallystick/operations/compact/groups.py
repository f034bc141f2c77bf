"""Groups small files: which of them become one shared file, and which shared files one compaction. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from tallystick.format.compaction import Run, SharedFile
from tallystick.tables.partitioning import PartitionValue

RUNS_MAX = 5_000
"""The runs of one compaction: its object and the entries that it changes stay small."""
BYTES_MAX_FACTOR = 16
"""The shared files of one compaction, in files of the target size: the work that a cancelled grant loses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallFile:
    """A file that may be moved: its run, the object and row number where its rows are now, its partition and its size.

    `shared`: the shared file that the object is.
    """

    run: Run
    key: str
    first: int
    partition: tuple[PartitionValue, ...]
    size_bytes: int
    shared: SharedFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroup:
    """The files that become one shared file, in the order of time."""

    partition: tuple[PartitionValue, ...]
    files: tuple[SmallFile, ...]


@dataclass(slots=True)
class _Open:
    """A compaction that is being filled: bins by partition, the last one of each still open."""

    bins: dict[tuple[PartitionValue, ...], list[list[SmallFile]]] = field(default_factory=dict)
    runs: int = 0
    size_bytes: int = 0

    def add(self, file: SmallFile, target_bytes: int) -> None:
        bins = self.bins.setdefault(file.partition, [[]])
        filled = sum(f.size_bytes for f in bins[-1])
        if bins[-1] and filled + file.size_bytes > target_bytes:
            bins.append([])
        bins[-1].append(file)
        self.runs += 1
        self.size_bytes += file.size_bytes

    def close(self, files_min: int) -> tuple[FileGroup, ...]:
        """Return the groups that are worth a shared file; none if too few files would be saved."""
        groups = tuple(
            FileGroup(partition=partition, files=tuple(files))
            for partition, bins in self.bins.items()
            for files in bins
            # A file alone stays where it is, unless its entry already names a compaction, which this one replaces.
            if len(files) > 1 or files[0].run.source is not None
        )
        before = sum(len({f.key for f in group.files}) for group in groups)
        return groups if before - len(groups) >= max(1, files_min - 1) else ()


def grouped(
    files: Iterable[SmallFile], *, target_bytes: int, files_min: int
) -> tuple[tuple[FileGroup, ...], ...]:
    """Return the compactions of one table as groups of files: by partition, in the order of time, up to the target size.

    All files of a plan are in the same compaction, because its entry names one for the table. A compaction that would
    save fewer than `files_min` - 1 files is left out: the next run finds its files again, with more of them.
    """
    ordered = sorted(files, key=lambda f: (f.run.interval.start, f.run.plan, f.run.key))
    found: list[tuple[FileGroup, ...]] = []
    current = _Open()
    for _, some in groupby(ordered, key=lambda f: f.run.plan):
        of_plan = list(some)
        if current.runs and _is_full(current, of_plan, target_bytes):
            found.append(current.close(files_min))
            current = _Open()
        for file in of_plan:
            current.add(file, target_bytes)
    found.append(current.close(files_min))
    return tuple(groups for groups in found if groups)


def _is_full(current: _Open, more: Sequence[SmallFile], target_bytes: int) -> bool:
    return (
        current.runs + len(more) > RUNS_MAX
        or current.size_bytes + sum(f.size_bytes for f in more) > BYTES_MAX_FACTOR * target_bytes
    )
