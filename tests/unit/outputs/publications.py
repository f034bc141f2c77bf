"""Publications without a lake: the input of an output, built by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from support.small_lake import days
from tallystick.outputs.port import NoRows, Publication, Rows, Scope

SCOPE = Scope(lake="memory://small", pipeline="small")


class TableRows:
    """Rows of Arrow tables, one per data file."""

    def __init__(self, *tables: pa.Table) -> None:
        self._tables = tables

    def __len__(self) -> int:
        return sum(len(table) for table in self._tables)

    def batches(self, start: int = 0) -> Iterator[pa.RecordBatch]:
        """Return the rows in batches of two."""
        for table in self._tables:
            for batch in table.to_batches(max_chunksize=2):
                if start < len(batch):
                    yield batch.slice(start)
                start = max(0, start - len(batch))


def rows(*values: dict[str, Any]) -> Rows:
    """Return rows of one file."""
    return TableRows(pa.Table.from_pylist(list(values))) if values else NoRows()


def in_the_year_10000(**more: list[str]) -> Publication:
    """Return a publication of two rows, the second with a time in the year 10000."""
    after = 253_402_300_800_000_000  # microseconds
    table = pa.table({"k": ["a", "b"], **more})
    times = pa.array([0, after], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    return replace(publication([]), rows=TableRows(table.append_column("at", times)))


IN_THE_YEAR_10000 = (
    "output feed of [2013-01-01T00:00:00.000Z, 2013-01-02T00:00:00.000Z), generation 1: row 1 (k='b'), column "
    "'at': expected the years 1 to 9999, which receivers can read, found 253402300800000000 microseconds since 1970."
)


def publication(
    values: Sequence[dict[str, Any]],
    *,
    plan: int = 1,
    generation: int = 1,
    instead_of: int | None = None,
    before: Sequence[dict[str, Any]] = (),
    first: int = 1,
    output: str = "feed",
    identity: tuple[str, ...] = ("k",),
) -> Publication:
    """Return the publication of one interval. A plan is named by a number."""
    return Publication(
        pipeline="small",
        output=output,
        interval=days(first, first + 1),
        generation=generation,
        plan=f"{plan:032x}",
        identity=identity,
        rows=rows(*values),
        instead_of=None if instead_of is None else f"{instead_of:032x}",
        generation_before=None if instead_of is None else generation - 1,
        rows_before=rows(*before),
    )
