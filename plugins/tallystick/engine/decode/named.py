"""Columns that are fields of a schema: their names and their number.

Fields keep their names if a column may have them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tallystick.errors import InvalidPipeline
from tallystick.pipeline import Column
from tallystick.pipeline.merging import numbered_columns
from tallystick.pipeline.paths import escaped

COLUMNS_MAX = 10_000
"""The most columns of a schema with their parts, also those that are left out."""


class ColumnCount:
    """Counts the columns and parts of one schema: records that contain each other have any number of them."""

    def __init__(self) -> None:
        self._found = 0

    def add(self) -> None:
        """Count one more; raises InvalidPipeline if there are more than `COLUMNS_MAX`."""
        self._found += 1
        if self._found > COLUMNS_MAX:
            raise InvalidPipeline(
                f"schema: expected at most {COLUMNS_MAX} columns with their parts, found more.",
                hint="declare the columns of the topic: records that contain each other have too many.",
            )


def named_columns(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Return columns with names of which no two differ only in case, and none begins with an underscore.

    Such names are reserved, or ambiguous in engines. The first column keeps its name, a later one gets a number. `source`
    is then the field.
    """
    return numbered_columns(map(_allowed, columns))


def _allowed(column: Column) -> Column:
    name = column.name.lstrip("_") or "field"
    source = escaped(column.name) if column.source is None else column.source
    return column if name == column.name else replace(column, name=name, source=source)
