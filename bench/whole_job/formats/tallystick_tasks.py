"""The tasks `plan` and `commit` of tallystick for each record set, as processes; see `contenders.tallystick_tasks`.

python -m bench.whole_job.formats.tallystick_tasks plan|commit FOLDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.whole_job.contenders.tallystick_tasks import CLICK, ORDER, ReplayOrder, run_task
from tallystick import Avro, Column, Json, Pipeline, Table, Topic

DOCUMENT = [
    Column("order_id", "string"),
    Column("status", "string"),
    Column("placed_at", "timestamptz"),
    Column("currency", "string"),
    Column("total", "decimal(12,2)"),
    Column(
        "customer",
        "struct<id: long, name: string, email: string, vip: boolean, referrer: optional string>",
    ),
    Column(
        "shipping",
        "struct<street: string, city: string, zip: string, country: string, geo: struct<lat: double, lon: double>>",
    ),
    Column(
        "items",
        "list<struct<sku: string, title: string, quantity: int, price: double, discount: optional double, "
        "gift: boolean>>",
    ),
    Column("tags", "list<string>"),
    Column("note", "string", required=False),
    Column("attempts", "int"),
    Column("paid", "boolean"),
]
# As in dags/flights.py, which also declares a DAG.
FLIGHT = [
    Column("year", "int"),
    Column("month", "int"),
    Column("day", "int"),
    Column("dep_time", "int", required=False),
    Column("sched_dep_time", "int"),
    Column("dep_delay", "int", required=False),
    Column("arr_time", "int", required=False),
    Column("sched_arr_time", "int"),
    Column("arr_delay", "int", required=False),
    Column("carrier", "string"),
    Column("flight", "int"),
    Column("tailnum", "string", required=False),
    Column("origin", "string"),
    Column("dest", "string"),
    Column("air_time", "int", required=False),
    Column("distance", "int"),
    Column("hour", "int"),
    Column("minute", "int"),
    Column("time_hour", "timestamptz"),
    Column("departure", "timestamptz"),
]
DECODED: Mapping[str, Json | Avro] = {
    "documents": Json(DOCUMENT),
    "flights": Json(FLIGHT),
    "avro": Avro(CLICK, registry="default"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatOrder(ReplayOrder):
    """What one run of tallystick replays of a record set, and into which lake."""

    record_set: str

    def pipeline(self) -> Pipeline:
        """Return the declaration, as a user writes it."""
        decode = DECODED[self.record_set]
        assert decode.columns is not None
        return Pipeline(
            name="clicks",
            topics=[Topic(self.topic, decode=decode)],
            warehouse=self.warehouse,
            job="job.py",
            tables=[Table("events", columns=decode.columns)],
        )


def main(task: str, folder: Path) -> None:
    """Run one task on the order of the folder."""
    run_task(task, folder, FormatOrder(**json.loads((folder / ORDER).read_text())))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
