"""Flights unchanged, each with a column that is true if it left late."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tallystick.spark import run

LATE_MINUTES = 15


def transform(records: pa.Table) -> dict[str, pa.Table]:
    """Return one row per flight; a flight that never left has no delay, and is not late."""
    late = pc.fill_null(pc.greater_equal(records["dep_delay"], LATE_MINUTES), False)
    return {"departures": records.append_column("late", late)}


if __name__ == "__main__":
    run(transform)
