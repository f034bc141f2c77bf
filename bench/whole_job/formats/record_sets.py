"""The record sets of the benchmark of formats: how records are made, and by which columns a result is compared.

The expected rows come from the numbers that the records are made of, or from the CSV file of the flights. No decoder has
a part in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from bench.whole_job.contender import CANONICAL, EVENTS
from bench.whole_job.formats.avro_clicks import SCHEMA, avro_clicks
from bench.whole_job.formats.documents import documents
from bench.whole_job.formats.flights import COLUMNS as FLIGHT
from bench.whole_job.formats.flights import INSTANTS, flights
from bench.whole_job.places import RecordPlaces
from bench.whole_job.records import MadeBatch

PLACE = {"partition": "integer", "offset": "bigint"}
_CUSTOMER = "struct(id bigint, name varchar, email varchar, vip boolean, referrer varchar)"
_GEO = "struct(lat double, lon double)"
_SHIPPING = f"struct(street varchar, city varchar, zip varchar, country varchar, geo {_GEO})"
_ITEM = "struct(sku varchar, title varchar, quantity integer, price double, discount double, gift boolean)"
_DOCUMENT = {
    "order_id": "varchar",
    "status": "varchar",
    "placed_at": "bigint",
    "currency": "varchar",
    "total": "decimal(12,2)",
    "customer": _CUSTOMER,
    "shipping": _SHIPPING,
    "items": f"{_ITEM}[]",
    "tags": "varchar[]",
    "note": "varchar",
    "attempts": "integer",
    "paid": "boolean",
}


class Batches(Protocol):
    """Makes the records of a set."""

    def __call__(
        self, seed: int, records: int, *, places: RecordPlaces, schema_id: int
    ) -> Iterator[MadeBatch]:
        """Yield the records in order; the same arguments give the same bytes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSet:
    """Records of one kind.

    `types`: the columns by which a table of events is compared, with DuckDB's types. `found`: an expression over the
    declared columns for each of them that is not the column of its name. `schema`: the Avro schema in the registry.
    """

    name: str
    what: str
    batches: Batches
    types: Mapping[str, str]
    found: Mapping[str, str]
    schema: Mapping[str, Any] | None = None

    def columns(self, *, partition: str, offset: str) -> dict[str, str]:
        """Return the expressions of a result table, whose columns with the place of a record have these names."""
        own = {name: f'"{name}"' for name in self.types}
        return {**own, **self.found, "partition": f'"{partition}"', "offset": f'"{offset}"'}

    @property
    def canonical(self) -> dict[str, Mapping[str, str]]:
        """The compared columns of each table."""
        return {EVENTS: self.types}


def _micros(*names: str) -> dict[str, str]:
    return {name: f'epoch_us("{name}")' for name in names}


SETS: Mapping[str, RecordSet] = {
    one.name: one
    for one in (
        RecordSet(
            name="documents",
            what="orders as nested JSON: two structs, a list of 3 to 8 structs, a list of texts, escaped and non-ASCII "
            "text, null and missing fields, and fields that no column reads; one in 200 is broken",
            batches=documents,
            types=_DOCUMENT | PLACE,
            found=_micros("placed_at"),
        ),
        RecordSet(
            name="flights",
            what="the flights that left New York City in 2013, as `make demo` sends them: flat JSON with 20 fields, "
            "repeated as often as needed; none is broken",
            batches=flights,
            types={name: "bigint" if name in INSTANTS else kind for name, kind in FLIGHT.items()}
            | PLACE,
            found=_micros(*INSTANTS),
        ),
        RecordSet(
            name="avro",
            what="the clicks of `make bench` as Avro in Confluent's wire format, with the id of a schema in a registry; "
            "one in 200 is cut off",
            batches=avro_clicks,
            types=CANONICAL[EVENTS],
            found={"os": "device.os", "ver": "device.ver"},
            schema=SCHEMA,
        ),
    )
}
