"""Flights unchanged, and the number that were due at each airport in each hour."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tallystick.spark import run


def transform(records: pa.Table) -> dict[str, pa.Table]:
    """Return one row per flight, and a count per hour and airport for this batch.

    `records` has the decoded columns of the topic and each record's lineage (`_topic`, `_kafka_partition`, `_offset`,
    `_timestamp`). The counts are partial: the pipeline declares that they are summed to one row per hour and airport.
    """
    hours = pc.floor_temporal(records["departure"], unit="hour")
    departures = (
        pa.table({"hour": hours, "origin": records["origin"]})
        .group_by(["hour", "origin"])
        .aggregate([([], "count_all")])
        .rename_columns(["hour", "origin", "departures"])
    )
    return {"flights": records, "departures_hourly": departures}


if __name__ == "__main__":
    run(transform)
