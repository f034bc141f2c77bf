"""Sorts the rows of several runs, and stores for each row of the sorted file which run it is of: its row order.

The object is a Parquet file with one column, `run`: the number of the run of the row at each position. The rows
of a run are numbered in their order in the sorted file, so the position of each row follows from these numbers alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tallystick.errors import Corrupt
from tallystick.format.canonical import corrupt
from tallystick.format.compaction import RowOrder, SharedFile
from tallystick.protocol.compacting import Positions
from tallystick.store import Store
from tallystick.tables.schema import uuid_bytes

RUN = "run"
SCHEMA = pa.schema([pa.field(RUN, pa.int32(), nullable=False)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowPlaces:
    """Where the rows of a shared file are: `places[number]` is the position of a row. None: each is at its number."""

    places: np.ndarray | None = None

    def positions(self, numbers: Positions) -> np.ndarray:
        """Return the positions of some row numbers, ascending."""
        ranges = [np.arange(first, end, dtype=np.int64) for first, end in numbers]
        wanted = np.concatenate(ranges) if ranges else np.empty(0, np.int64)
        return wanted if self.places is None else np.sort(self.places[wanted])

    def ranges(self, numbers: Positions) -> Positions:
        """Return the positions of some row numbers as ranges."""
        return numbers if self.places is None else _as_ranges(self.positions(numbers))

    def numbered(self, rows: pa.Table) -> pa.Table:
        """Return the rows of the file in the order of their numbers. Raises Corrupt if their number is another one."""
        if self.places is None:
            return rows
        if len(rows) != len(self.places):
            raise Corrupt(
                f"expected a file of {len(self.places)} rows as in its row order, found {len(rows)} rows.",
                hint="run `tally verify --deep`: the file is not the one that was listed. Nothing was changed.",
            )
        return rows.take(pa.array(self.places))


def _as_ranges(positions: np.ndarray) -> Positions:
    if not len(positions):
        return ()
    cuts = np.flatnonzero(np.diff(positions) != 1) + 1
    firsts = positions[np.concatenate(([0], cuts))]
    ends = positions[np.concatenate((cuts - 1, [len(positions) - 1]))] + 1
    return tuple(zip(firsts.tolist(), ends.tolist(), strict=True))


def sorted_rows(rows: pa.Table, by: Sequence[str], run_of: np.ndarray) -> tuple[pa.Table, bytes]:
    """Return the rows sorted by columns, ascending and nulls first, and the bytes of their row order.

    `run_of`: the number of the run of each row, ascending. Strings, binary values and UUIDs are compared by their bytes,
    as Iceberg compares them.
    """
    columns: dict[str, pa.ChunkedArray] = {}
    for number, name in enumerate(by):
        values = uuid_bytes(rows.column(name))
        # Arrow 21 and 25 have different options for nulls, and this works with both.
        columns[f"{number} is valid"] = pc.is_valid(values).cast(pa.int8())
        columns[f"{number}"] = values
    places = pc.sort_indices(
        pa.table(columns), sort_keys=[(column, "ascending") for column in columns]
    )
    return rows.take(places), order_bytes(run_of[places.to_numpy()])


def order_bytes(runs: np.ndarray) -> bytes:
    """Return the bytes of a row order. `runs`: the number of the run of the row at each position."""
    body = BytesIO()
    pq.write_table(
        pa.table([pa.array(runs, pa.int32())], schema=SCHEMA),
        body,
        compression="zstd",
        write_page_checksum=True,
        store_schema=False,
    )
    return body.getvalue()


def read_places(store: Store, shared: SharedFile) -> RowPlaces | None:
    """Return where the rows of a shared file are; None if its row order is gone. Raises Corrupt if it is another one."""
    if shared.order is None:
        return RowPlaces()
    rows = tuple(run.rows for run in shared.runs)
    return stored_places(store, shared.order, rows=rows)


def stored_places(store: Store, order: RowOrder, *, rows: Sequence[int]) -> RowPlaces | None:
    """Return where rows are by a stored row order; None if it is gone. `rows`: the number of rows of each run.

    Raises Corrupt if the object has another ETag, is unreadable, or has other numbers of rows.
    """
    stored = store.get(order.key)
    if stored is None:
        return None
    where = f"{store.uri}/{order.key}"
    if stored.etag != order.etag:
        raise corrupt(where, f"expected the row order with ETag {order.etag}, found {stored.etag}")
    try:
        found = pq.read_table(
            pa.BufferReader(stored.body), schema=SCHEMA, page_checksum_verification=True
        )
    except (pa.ArrowException, OSError) as error:
        raise corrupt(where, f"expected a row order ({type(error).__name__})") from error
    runs = found.column(RUN).to_numpy()
    if runs.min(initial=0) < 0 or np.bincount(runs, minlength=len(rows)).tolist() != list(rows):
        raise Corrupt(
            f"{where}: expected {sum(rows)} rows of {len(rows)} runs, found {len(runs)} rows with other numbers per run.",
            hint="restore it from a bucket version: the rows of an interval are found by it in the sorted file.",
        )
    return RowPlaces(places=np.argsort(runs, kind="stable"))
