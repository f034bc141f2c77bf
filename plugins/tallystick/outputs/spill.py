"""Stores digests of rows on the local disk, counts them and compares two generations, in the memory of a few batches.

DuckDB keeps the digests in its own tables, and moves data above MEMORY to files in a temporary folder. The folder is
removed when the work ends. If a process is killed, the next process that needs a folder removes the one that is left.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeVar
from uuid import UUID

import duckdb
import pyarrow as pa

from tallystick.errors import OutputUnavailable, ScratchFull

T = TypeVar("T")

MEMORY = "256MB"
"""The memory that DuckDB may use before it writes to the disk.

With 50 million rows, the process was measured to grow by up to 430 MB.
"""
BATCH = 65_536
SLICE_ROWS = 1_000_000
BEFORE, AFTER = 0, 1
_PREFIX = "tallystick-rows-"
_LOCK = "lock"
_LOCK_MADE_S = 600
_ROOM_LEFT = 64 << 20  # DuckDB stops before the disk is completely full

# The rows that are not the first of their identity, each with the number of earlier rows of that identity.
_COUNTED = """
INSERT INTO found
SELECT number, before FROM (
  SELECT number, row_number() OVER (PARTITION BY id ORDER BY number) - 1 AS before FROM by_id WHERE {slice}
) WHERE before > 0
"""
# A generation has each digest of identity and occurrence once: if there are two rows, both generations have the row.
_COMPARED = """
INSERT INTO found
SELECT side, number, total = 2 AS there FROM (
  SELECT side, number, count(*) OVER one AS total, min(content) OVER one AS low, max(content) OVER one AS high
  FROM by_id WHERE {slice} WINDOW one AS (PARTITION BY id)
) WHERE total = 1 OR (low <> high AND side = 1)
"""


class DigestTables:
    """Tables on the local disk for digests of rows. Nothing is created before the first digests arrive."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._lock: IO[bytes] | None = None
        self._connection: duckdb.DuckDBPyConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove all tables and files. Safe to repeat: what is gone stays gone."""
        if self._connection is not None:
            self._connection.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()
        self._folder = self._lock = self._connection = None

    # ------------------------------------------------------------ rows of one identity

    def count(self, name: str, digests: Iterable[bytes]) -> None:
        """Count, for each row, the earlier rows that have the same digest of 16 bytes.

        Safe to repeat: it writes to this object's own folder, and replaces the earlier counts of this name.
        """
        self._run(f"DROP TABLE IF EXISTS {name}")
        self._run("CREATE TABLE digests (id UUID, number BIGINT)")
        for number, some in _batches(digests):
            table = pa.table({"id": _uuids(some), "number": _numbers(number, len(some))})
            self._insert("digests", table)
        self._run("CREATE TABLE found (number BIGINT, before BIGINT)")
        self._by_slices("digests", _COUNTED)
        self._run(f"CREATE TABLE {name} AS SELECT * FROM found ORDER BY number")
        self._run("DROP TABLE found")

    def counted(self, name: str, first: int, end: int) -> dict[int, int]:
        """Return the counts above 0 of the rows `first <= number < end`, by row number."""
        return dict(
            self._rows(
                f"SELECT number, before FROM {name} WHERE number >= ? AND number < ?", first, end
            )
        )

    # ------------------------------------------------------------ two generations

    def compare(
        self, before: Iterable[tuple[bytes, bytes]], after: Iterable[tuple[bytes, bytes]]
    ) -> None:
        """Find the rows that differ between two generations. Each row is two digests: of its name and of its content.

        Safe to repeat: it writes to this object's own folder, and replaces the earlier result.
        """
        self._run("DROP TABLE IF EXISTS changed")
        self._run("CREATE TABLE generations (id UUID, content UUID, side UTINYINT, number BIGINT)")
        for side, rows in ((BEFORE, before), (AFTER, after)):
            for number, some in _batches(rows):
                table = pa.table(
                    {
                        "id": _uuids([id_ for id_, _ in some]),
                        "content": _uuids([content for _, content in some]),
                        "side": pa.repeat(pa.scalar(side, pa.uint8()), len(some)),
                        "number": _numbers(number, len(some)),
                    }
                )
                self._insert("generations", table)
        self._run("CREATE TABLE found (side UTINYINT, number BIGINT, there BOOLEAN)")
        self._by_slices("generations", _COMPARED)
        self._run("CREATE TABLE changed AS SELECT * FROM found ORDER BY side, number")
        self._run("DROP TABLE found")

    def changed(self, side: int, first: int, end: int) -> dict[int, bool]:
        """Return the rows `first <= number < end` of a generation that differ, by number.

        The value is True if the other generation has the row, too. Such a row is returned for the newer generation
        only.
        """
        return dict(
            self._rows(
                "SELECT number, there FROM changed WHERE side = ? AND number >= ? AND number < ?",
                side,
                first,
                end,
            )
        )

    def any_changed(self, side: int) -> bool:
        """Return True if a generation has a row that differs."""
        return bool(self._rows("SELECT 1 FROM changed WHERE side = ? LIMIT 1", side))

    # ------------------------------------------------------------ DuckDB

    def _by_slices(self, table: str, statement: str) -> None:
        """Sort a table by its ids, and run a statement on one slice of it after another.

        DuckDB sorts tables of any size, but its window functions over many millions of rows need more memory than the
        limit.
        """
        ((rows,),) = self._rows(f"SELECT count(*) FROM {table}")
        self._run(f"CREATE TABLE by_id AS SELECT * FROM {table} ORDER BY id")
        self._run(f"DROP TABLE {table}")
        count = rows // SLICE_ROWS + 1
        bounds = [f"'{UUID(int=at * (1 << 128) // count)}'::UUID" for at in range(1, count)]
        for low, high in zip([None, *bounds], [*bounds, None], strict=True):
            above = f"id >= {low}" if low else "true"
            below = f"id < {high}" if high else "true"
            self._run(statement.format(slice=f"{above} AND {below}"))
        self._run("DROP TABLE by_id")

    def _insert(self, into: str, table: pa.Table) -> None:
        connection = self._open()
        connection.register("batch", table)
        try:
            self._run(f"INSERT INTO {into} SELECT * FROM batch")
        finally:
            connection.unregister("batch")

    def _run(self, statement: str) -> None:
        with self._named():
            self._open().execute(statement)

    def _rows(self, statement: str, *values: int) -> list[Any]:
        with self._named():
            return self._open().execute(statement, values).fetchall()

    def _open(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            self._folder, self._lock = _own_folder()
            self._connection = duckdb.connect(
                ":memory:",
                config={
                    "memory_limit": MEMORY,
                    "temp_directory": str(self._folder / "files"),
                    "threads": 1,  # each thread would need memory of its own
                    "preserve_insertion_order": False,
                    "autoinstall_known_extensions": False,
                    "autoload_known_extensions": False,
                },
            )
        return self._connection

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Turn DuckDB's errors into tallystick's, including those of a folder that cannot be created."""
        try:
            yield
        except (duckdb.Error, OSError) as error:
            where = self._folder or Path(tempfile.gettempdir())
            free = _free(where)
            text = str(error).splitlines()[0]
            if free < _ROOM_LEFT or "space" in text.lower():
                raise ScratchFull(
                    f"the rows of an output are compared on the local disk, and it is full: {free >> 20} MiB are free "
                    f"for {where} ({text}).",
                    hint="free some space there, or set TMPDIR to a folder with more: docs/reference/outputs.md has the "
                    "bytes per row. Nothing was sent, and it is tried again.",
                ) from error
            raise OutputUnavailable(
                f"the rows of an output could not be compared on the local disk, in {where}: {text}.",
                hint="check that folder (TMPDIR sets another one). Nothing was sent, and it is tried again.",
            ) from error


def _batches(items: Iterable[T]) -> Iterator[tuple[int, list[T]]]:
    each, number = iter(items), 0
    while some := list(islice(each, BATCH)):
        yield number, some
        number += len(some)


def _uuids(digests: list[bytes]) -> pa.Array:
    """Return digests as UUIDs: DuckDB's only type of 16 bytes that is stored in place."""
    stored = pa.array(digests, pa.binary(16))
    return pa.ExtensionArray.from_storage(pa.uuid(), stored)


def _numbers(first: int, count: int) -> pa.Array:
    return pa.array(range(first, first + count), pa.int64())


# ---------------------------------------------------------------- the folder


def _own_folder() -> tuple[Path, IO[bytes]]:
    """Create a folder, and a lock that is held as long as its process lives. Remove the folders of dead processes."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        _remove_abandoned(left)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        file = (folder / _LOCK).open("wb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()  # another process takes the folder for abandoned and holds its lock
            continue
        if os.fstat(file.fileno()).st_nlink:
            return folder, file
        file.close()  # that process has removed the folder


def _remove_abandoned(folder: Path) -> None:
    """Remove the folder of a process that has died. Safe to repeat: a process that is alive holds its lock."""
    with suppress(OSError):
        try:
            file = (folder / _LOCK).open("rb")
        except FileNotFoundError:
            # The process may be about to create its lock. If it died before that, its folder is empty.
            if time.time() - folder.stat().st_mtime > _LOCK_MADE_S:
                folder.rmdir()
            return
        with file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


def _free(where: Path) -> int:
    try:
        found = os.statvfs(where)
    except FileNotFoundError:
        return _free(where.parent)  # the folder was removed; its disk is still there
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize
