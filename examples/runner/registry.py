"""The examples: a line each, in the order in which `NAME=all` runs them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from examples.ads.scenario import Ads
from examples.average.scenario import Average
from examples.billing.scenario import Billing
from examples.cleanup.scenario import Cleanup
from examples.counts.scenario import Counts
from examples.debezium.scenario import DebeziumChanges
from examples.dedup.scenario import Dedup
from examples.fanout.scenario import Fanout
from examples.files.scenario import Files
from examples.orders_avro.scenario import OrdersAvro
from examples.orders_protobuf.scenario import OrdersProtobuf
from examples.runner.harness import Example, Harness
from examples.upsert.scenario import Upsert
from tallystick_devstack.info import PARTS, REGISTRY

EXAMPLES: Mapping[str, Callable[[Harness], Example]] = {
    "files": Files,
    "counts": Counts,
    "upsert": Upsert,
    "dedup": Dedup,
    "billing": Billing,
    "cleanup": Cleanup,
    "average": Average,
    "ads": Ads,
    "orders-avro": OrdersAvro,
    "orders-protobuf": OrdersProtobuf,
    "fanout": Fanout,
    "debezium": DebeziumChanges,
}
WITH_REGISTRY: frozenset[str] = frozenset({"fanout", "orders-avro", "orders-protobuf"})
"""The examples that need the stack's schema registry."""


def parts_of(names: Collection[str]) -> tuple[str, ...]:
    """Return the parts of the stack that these examples need."""
    return (*PARTS, REGISTRY) if WITH_REGISTRY.intersection(names) else PARTS
