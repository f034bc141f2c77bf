"""Orders, the two versions of their Avro schema, and the values of each version. All is generated from a number."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

DAY_S = 86_400
COUNTRIES = ("DE", "FR", None)
STATUSES = ("PLACED", "PAID", "SENT")
BEYOND_INT = 2**31


def _record(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    listed = [
        {"name": field, "type": kind} | ({"default": None} if isinstance(kind, list) else {})
        for field, kind in fields
    ]
    return {"type": "record", "name": name, "fields": listed}


def _decimal(precision: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2}


_ITEM = _record("Item", ("sku", "string"), ("price", _decimal(7)))
_STATUS = {"type": "enum", "name": "Status", "symbols": list(STATUSES)}
_FIRST_FIELDS = (
    ("amount", _decimal(9)),
    ("placed", {"type": "long", "logicalType": "timestamp-millis"}),
    ("status", _STATUS),
    ("items", {"type": "array", "items": _ITEM}),
)
KEY = _record("OrderKey", ("shop", "string"), ("order_id", "long"))
FIRST = _record(
    "Order",
    ("customer", "string"),
    ("quantity", "int"),
    ("address", _record("Address", ("street", "string"), ("city", "string"))),
    *_FIRST_FIELDS,
)
SECOND = _record(
    "Order",
    ("customer", "string"),
    ("quantity", "long"),
    (
        "address",
        _record(
            "Address", ("street", "string"), ("city", "string"), ("country", ["null", "string"])
        ),
    ),
    *_FIRST_FIELDS,
    ("coupon", ["null", "string"]),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One order: its key, and its value in one of the versions, 1 or 2."""

    number: int
    at: datetime
    version: int

    @property
    def key(self) -> dict[str, Any]:
        """The key."""
        return {"shop": f"shop-{self.number % 5}", "order_id": self.number}

    @property
    def value(self) -> dict[str, Any]:
        """The value as its schema describes it."""
        number = self.number
        prices = [Decimal(number * step % 99_999).scaleb(-2) for step in (7, 11, 13)][: number % 4]
        address: dict[str, str | None] = {
            "street": f"Straße {number % 90}",
            "city": f"city {number % 7}",
        }
        value: dict[str, Any] = {
            "customer": f"customer-{number % 31}",
            "quantity": number % 9,
            "address": address,
            "amount": sum(prices, Decimal("0.00")),
            "placed": self.at,
            "status": STATUSES[number % 3],
            "items": [
                {"sku": f"sku-{number % 17}-{at}", "price": price}
                for at, price in enumerate(prices)
            ],
        }
        if self.version == 2:
            address["country"] = COUNTRIES[number % 3]
            value["quantity"] += BEYOND_INT if number % 2 else -BEYOND_INT
            value["coupon"] = f"coupon-{number}" if number % 4 else None
        return value


def orders(day: datetime, count: int, *, versions: tuple[int, ...]) -> list[Order]:
    """Return the orders of one day, evenly over the day, with these versions in turn."""
    first = day.toordinal() * 10_000
    return [
        Order(
            number=first + number,
            at=day.astimezone(UTC)
            + timedelta(seconds=number * DAY_S // count, milliseconds=number % 1000),
            version=versions[number % len(versions)],
        )
        for number in range(count)
    ]
