"""How many files the report of an attempt has room for, checked while they are made and not when all are uploaded.

A report lists every file with its statistics in one object, of at most BODY_BYTES_MAX. Each task makes at least a file
per partition value that its rows have, so a table with very many values, read by many tasks, can be too much.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tallystick.errors import InvalidPipeline
from tallystick.format import keys
from tallystick.format.canonical import BODY_BYTES_MAX, dumps
from tallystick.format.plan import Plan, PlannedTable
from tallystick.format.report import ColumnStatistics, FileReport

_NO_UUID = "0" * 32
_SHORTER = "shorter intervals (a schedule that comes more often, or `from` and `to` of a Trigger)"
_COARSER = (
    "a new table with a coarser partition_by, under another name: a table in the lake keeps its own"
)


@dataclass(slots=True, kw_only=True)
class ReportRoom:
    """What one task's files will need of the report, at the least; all writers of a task share it."""

    plan: Plan
    attempt: str
    task: str
    bytes_max: int = BODY_BYTES_MAX
    _least: dict[str, int] = field(default_factory=dict)
    _files: dict[str, int] = field(default_factory=dict)

    def expect(self, table: PlannedTable, partition_by: Sequence[str], values: int) -> None:
        """Take note that a table has rows of so many partition values, thus at least as many files.

        Raises InvalidPipeline when this task's files alone are more than any report can list.
        """
        if table.name not in self._least:
            self._least[table.name] = self._least_bytes(table, partition_by)
        self._files[table.name] = values
        needed = sum(self._least[name] * files for name, files in self._files.items())
        if needed > self.bytes_max:
            raise _too_many(
                f"table {table.name!r}: one task of {self.plan.interval} has rows of {values} partition values "
                f"({', '.join(partition_by)}) so far, and each needs a file",
                self.bytes_max,
                f"{_SHORTER}; or {_COARSER}",
            )

    def _least_bytes(self, table: PlannedTable, partition_by: Sequence[str]) -> int:
        """Bytes of the report that a file of the table takes, whatever is in it."""
        file = FileReport(
            table=table.name,
            key=keys.data_file(table.name, self.plan.key, self.attempt, self.task, _NO_UUID),
            etag="-",
            size_bytes=1,
            rows=1,
            partition=tuple(0 for _ in partition_by),
            columns=tuple(
                ColumnStatistics(id=c.id, size_bytes=0, values=0, nulls=0) for c in table.columns
            ),
        )
        return len(dumps(file.to_json())) + 1  # and a comma


def file_bytes(files: Iterable[FileReport]) -> int:
    """Return how many bytes of a report these files take."""
    return sum(len(dumps(file.to_json())) + 1 for file in files)


def require_room(
    files: Sequence[FileReport], *, tasks: int, plan: Plan, bytes_max: int = BODY_BYTES_MAX
) -> None:
    """Raise InvalidPipeline if the files are more than the report of an attempt can list; `tasks` made them."""
    if file_bytes(files) <= bytes_max:
        return
    by_table = {name: sum(f.table == name for f in files) for name in {f.table for f in files}}
    table = max(by_table, key=lambda name: by_table[name])
    what = f"table {table!r} has {by_table[table]} of {len(files)} files, made by {tasks} task(s)"
    raise too_many_files(what, plan, bytes_max)


def too_many_files(what: str, plan: Plan, bytes_max: int) -> InvalidPipeline:
    """Build the error for more files of all tasks together than a report can list."""
    per_task = plan.spec["records_per_task"]
    return _too_many(
        f"{plan.interval}: {what}: each task makes a file per partition value of its rows",
        bytes_max,
        f"fewer tasks, with a higher records_per_task (now {per_task}); {_SHORTER}; in a DataFrame job a repartition() "
        f"by the columns of partition_by before the rows are returned; or {_COARSER}",
    )


def _too_many(message: str, bytes_max: int, ways: str) -> InvalidPipeline:
    return InvalidPipeline(
        f"{message}. A report lists all files of an attempt in one object of at most {bytes_max} bytes.",
        hint=f"nothing was committed. Each of these makes fewer files: {ways}. Then clear `plan`.",
    )
