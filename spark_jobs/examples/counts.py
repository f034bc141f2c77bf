"""The number of flights that were due at each airport in each hour: partial counts, which the pipeline sums."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tallystick.spark import run

COUNT_CANCELLED = True


def transform(records: pa.Table) -> dict[str, pa.Table]:
    """Return a count per window and airport for this batch of records; a cancelled flight has no departure time."""
    if not COUNT_CANCELLED:
        records = records.filter(pc.is_valid(records["dep_time"]))
    hours = pc.floor_temporal(records["departure"], unit="hour")
    counts = (
        pa.table({"hour": hours, "origin": records["origin"]})
        .group_by(["hour", "origin"])
        .aggregate([([], "count_all")])
        .rename_columns(["hour", "origin", "flights"])
    )
    return {"per_hour": counts}


if __name__ == "__main__":
    run(transform)
