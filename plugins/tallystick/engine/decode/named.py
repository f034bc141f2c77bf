"""Names of columns that are fields of a schema: fields keep their names if a column may have them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tallystick.pipeline import Column
from tallystick.pipeline.paths import escaped


def named_columns(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Return columns with names of which no two differ only in case, and none begins with an underscore.

    Such names are reserved, or ambiguous in engines. The first column keeps its name, a later one gets a number. `source`
    is then the field.
    """
    taken: set[str] = set()
    found: list[Column] = []
    for column in columns:
        base = column.name.lstrip("_") or "field"
        name, number = base, 1
        while name.lower() in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(name.lower())
        if name != column.name:
            column = replace(column, name=name, source=escaped(column.name))  # noqa: PLW2901 - the same column, named
        found.append(column)
    return tuple(found)
