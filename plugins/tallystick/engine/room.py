"""Checks that an attempt's files fit into its report, while the files are made and not only after all uploads.

A report lists every file with its statistics, in one object of at most BODY_BYTES_MAX. Each task makes at least one file
per partition value of its rows. So a table with very many values, written by many tasks, can exceed this limit.
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
_SHORTER = "shorter intervals (a more frequent schedule, or `from` and `to` of a Trigger)"
_COARSER = "a coarser partition_by, which new files of the table have"


@dataclass(slots=True, kw_only=True)
class ReportRoom:
    """The minimum bytes of the report that one task's files need; all writers of a task share it."""

    plan: Plan
    attempt: str
    task: str
    bytes_max: int = BODY_BYTES_MAX
    _least: dict[str, int] = field(default_factory=dict)
    _files: dict[str, int] = field(default_factory=dict)

    def expect(self, table: PlannedTable, partition_by: Sequence[str], values: int) -> None:
        """Record that a table has rows of `values` partition values, and so at least as many files.

        Raises InvalidPipeline if this task's files alone are more than a report can list.
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
        """Return the minimum bytes of the report that a file of the table takes, regardless of its rows."""
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
    """Return the bytes of a report that these files take."""
    return sum(len(dumps(file.to_json())) + 1 for file in files)


def require_room(
    files: Sequence[FileReport], *, tasks: int, plan: Plan, bytes_max: int = BODY_BYTES_MAX
) -> None:
    """Raise InvalidPipeline if the files are more than an attempt's report can list; `tasks` is the number of tasks."""
    if file_bytes(files) <= bytes_max:
        return
    by_table = {name: sum(f.table == name for f in files) for name in {f.table for f in files}}
    table = max(by_table, key=lambda name: by_table[name])
    what = (
        f"table {table!r} has {by_table[table]} of {len(files)} files, written by {tasks} task(s)"
    )
    raise too_many_files(what, plan, bytes_max)


def too_many_files(what: str, plan: Plan, bytes_max: int) -> InvalidPipeline:
    """Build the error if the files of all tasks together are more than a report can list."""
    per_task = plan.spec["records_per_task"]
    return _too_many(
        f"{plan.interval}: {what}: each task writes a file per partition value of its rows",
        bytes_max,
        f"fewer tasks, with a higher records_per_task (now {per_task}); {_SHORTER}; in a DataFrame job a repartition() "
        f"by the columns of partition_by before the rows are returned; or {_COARSER}",
    )


def _too_many(message: str, bytes_max: int, ways: str) -> InvalidPipeline:
    return InvalidPipeline(
        f"{message}. A report lists all files of an attempt in one object of at most {bytes_max} bytes.",
        hint=f"reduce the number of files by one of: {ways}. Then clear `plan`. Nothing was committed.",
    )
