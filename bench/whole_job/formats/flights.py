"""The flights of the demo as records: real data, the 336,776 flights that left New York City in 2013.

The values are those of `make demo`, none broken. The expected rows come from the CSV file, as PyArrow reads it.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from bench.whole_job.places import RecordPlaces
from bench.whole_job.records import BATCH, FROM_MS, HOUR_MS, MadeBatch
from examples.demo.flights import Flight, csv_archive, read_flights

# The types in SQL; the times are text in the records, and microseconds since 1970 in the expected rows.
COLUMNS = {
    "year": "integer",
    "month": "integer",
    "day": "integer",
    "dep_time": "integer",
    "sched_dep_time": "integer",
    "dep_delay": "integer",
    "arr_time": "integer",
    "sched_arr_time": "integer",
    "arr_delay": "integer",
    "carrier": "varchar",
    "flight": "integer",
    "tailnum": "varchar",
    "origin": "varchar",
    "dest": "varchar",
    "air_time": "integer",
    "distance": "integer",
    "hour": "integer",
    "minute": "integer",
    "time_hour": "timestamptz",
    "departure": "timestamptz",
}
INSTANTS = ("time_hour", "departure")
_ARROW = {"integer": pa.int32(), "varchar": pa.string(), "timestamptz": pa.timestamp("us", "UTC")}


def flights(
    seed: int, records: int, *, places: RecordPlaces, schema_id: int = 0
) -> Iterator[MadeBatch]:
    """Yield the flights in the order of their departure, from the first one again after the last one.

    Neither the seed nor the id of a schema changes them.
    """
    every = read_flights()
    rows = expected_rows(every)
    for first in range(0, records, BATCH):
        count = min(BATCH, records - first)
        partitions, offsets = places.of(first, count)
        numbers = np.arange(first, first + count, dtype=np.int64)
        chosen = numbers % len(every)
        yield MadeBatch(
            first=first,
            partitions=partitions,
            offsets=offsets,
            timestamps=(FROM_MS + numbers * HOUR_MS // records).tolist(),
            values=[every[index].value for index in chosen.tolist()],
            kinds=np.full(count, -1, np.int8),
            rows=rows.take(pa.array(chosen))
            .append_column("partition", pa.array(partitions))
            .append_column("offset", pa.array(offsets)),
        )


def expected_rows(every: list[Flight]) -> pa.Table:
    """Return the rows of the flights in their order, from the CSV file."""
    options = pa_csv.ConvertOptions(
        column_types={name: _ARROW[kind] for name, kind in COLUMNS.items() if name != "departure"},
        null_values=["NA"],
        strings_can_be_null=True,
    )
    with zipfile.ZipFile(csv_archive()) as archive:
        content = archive.read("flights.csv")
    table = pa_csv.read_csv(io.BytesIO(content), convert_options=options)
    rows = table.take(pa.array([flight.row - 1 for flight in every]))
    hours = rows["time_hour"].cast(pa.int64())
    departures = pa.array([flight.at_ms * 1000 for flight in every], pa.int64())
    columns = {name: rows[name] for name in COLUMNS if name not in INSTANTS}
    return pa.table({**columns, "time_hour": hours, "departure": departures})
