"""The first alarm of each device within an hour, and the devices that have one."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame

from tallystick.spark import Context, deduplicated, run_dataframe

HORIZON = timedelta(hours=1)


def transform(records: DataFrame, context: Context) -> dict[str, DataFrame]:
    """Return the alarms that are kept, a notice per device with an alarm, and when each device was last seen."""
    first, seen = deduplicated(context, records, key=["device"], horizon=HORIZON, seen="seen")
    return {
        "alarms": first,
        # An interval longer than the horizon may keep two alarms of a device, but a key is in an interval once.
        "notices": first.select("device", "owner").distinct(),
        "seen": seen,
    }


if __name__ == "__main__":
    run_dataframe(transform)
