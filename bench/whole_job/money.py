"""What a terabyte of records costs at list prices, from the measured CPU seconds and requests of a run.

    dollars per TB = 1e12 / (bytes of the values of an interval)
        * (CPU seconds * price of a vCPU hour / 3600 + PUT and LIST requests * their price + GET requests * their price)

A TB is 1e12 bytes of uncompressed values in Kafka. CPU seconds are of a whole interval with its start. A vCPU is counted
as a core of the machine that measured. Not counted: idle time of the machine, the stored bytes, the broker, Airflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

TB: Final = 1e12
# Kinds of requests, as `counting_proxy.kind_of` names them; all others are priced as writes.
READS: Final = ("get", "head")
FREE: Final = ("delete", "delete many", "multipart abort")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPrices:
    """Prices in dollars: of an hour of a vCPU, of 1,000 PUT, COPY, POST or LIST requests, and of 1,000 other requests."""

    vcpu_hour: float
    write_thousand: float
    read_thousand: float
    source: str


# Half of an m7g.large, which has two vCPUs, on demand; S3 Standard.
PRICES: Final = ListPrices(
    vcpu_hour=0.0816 / 2,
    write_thousand=0.005,
    read_thousand=0.0004,
    source="AWS us-east-1, June 2026: m7g.large on demand 0.0816 dollars an hour (2 vCPUs); S3 Standard 0.005 dollars "
    "per 1,000 PUT, COPY, POST and LIST requests, 0.0004 per 1,000 GET and HEAD requests, DELETE free",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TerabyteCost:
    """Dollars per TB of values: for CPU time and for requests."""

    cpu: float
    requests: float

    @property
    def total(self) -> float:
        """The sum."""
        return self.cpu + self.requests


def requests_dollars(kinds: Mapping[str, float], prices: ListPrices = PRICES) -> float:
    """Return what requests cost; `kinds` is the number of each kind, as the counting proxy names them."""
    price_of = dict.fromkeys(FREE, 0.0) | dict.fromkeys(READS, prices.read_thousand)
    thousands = (count * price_of.get(kind, prices.write_thousand) for kind, count in kinds.items())
    return sum(thousands) / 1000


def terabyte_cost(
    *,
    cpu_s: float,
    kinds: Mapping[str, float],
    value_bytes: float,
    prices: ListPrices = PRICES,
) -> TerabyteCost:
    """Return the cost of a TB in intervals like the measured one.

    `cpu_s`, `kinds`, `value_bytes`: CPU seconds, requests by kind, and bytes of the values of one interval.
    """
    intervals = TB / value_bytes
    return TerabyteCost(
        cpu=intervals * cpu_s * prices.vcpu_hour / 3600,
        requests=intervals * requests_dollars(kinds, prices),
    )


def cost_of_run(run: Mapping[str, Any], value_bytes: float) -> TerabyteCost:
    """Return the cost of a TB by the figures of one run of a bundle."""
    cpu_s = sum(float(step["cpu_s"]) for step in run["steps"])
    return terabyte_cost(cpu_s=cpu_s, kinds=run["s3"]["kinds"], value_bytes=value_bytes)
