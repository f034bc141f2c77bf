"""Orders and refunds as Protobuf messages, and as the rows that they mean. All is generated from a number."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message
from grpc_tools import protoc

PROTOS = Path(__file__).parent
MONEY_FILE, ORDERS_FILE = "shop/money.proto", "shop/orders.proto"
ORDER, REFUND = "Order", "Refund"
DAY_S = 86_400
REFUND_EVERY = 4
STATUSES = ("UNKNOWN", "PLACED", "PAID")
CURRENCIES = ("EUR", "USD")

MessageClasses = Mapping[str, type[Message]]


def message_classes() -> MessageClasses:
    """Return the classes of the messages of shop/orders.proto and of what it imports, compiled by protoc."""
    with tempfile.TemporaryDirectory() as folder, as_file(files("grpc_tools") / "_proto") as known:
        out = Path(folder) / "descriptors"
        words = [f"-I{PROTOS}", f"-I{known}", "--include_imports", f"-o{out}", ORDERS_FILE]
        if protoc.main(["protoc", *words]):
            raise RuntimeError(f"protoc does not compile {PROTOS / ORDERS_FILE}")
        compiled = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in compiled.file:
        pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))
        for name in (ORDER, REFUND)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An order, or a refund of an order."""

    number: int
    at: datetime

    @property
    def kind(self) -> str:
        """The name of the message."""
        return REFUND if self.number % REFUND_EVERY == REFUND_EVERY - 1 else ORDER

    @property
    def table(self) -> str:
        """The table that has the row."""
        return "refunds" if self.kind == REFUND else "orders"

    def message(self, classes: MessageClasses) -> Message:
        """Return the message."""
        whole, rest = divmod(int(self.at.timestamp() * 1_000_000), 1_000_000)
        fields: dict[str, Any] = {
            "order_id": self.number,
            "total": _money(self.number, self._cents),
            "happened": {"seconds": whole, "nanos": rest * 1000},
        }
        if self.kind == REFUND:
            return classes[REFUND](**fields, reason=self._reason)
        if (card := self._card) is not None:
            fields["card"] = {"network": card, "last_digits": f"{self.number % 10_000:04}"}
        if (voucher := self._voucher) is not None:
            fields["voucher"] = voucher
        return classes[ORDER](**fields, status=self._status, lines=self._lines, points=self._points)

    @property
    def row(self) -> dict[str, Any]:
        """The row, which is written down from the same parts, and not read from the message."""
        row: dict[str, Any] = {
            "order_id": self.number,
            "happened": self.at,
            "currency": _money(self.number, 0)["currency"],
            "cents": self._cents,
        }
        if self.kind == REFUND:
            return {**row, "reason": self._reason}
        return {
            **row,
            "status": STATUSES[self._status],
            "lines": self._lines,
            "points": self._points or [],  # PyArrow returns an empty map as an empty list
            "card_network": self._card,
            "voucher": self._voucher,
        }

    @property
    def last_field(self) -> str:
        """The last field of the serialized message."""
        if self.kind == REFUND:
            return "reason" if self._reason else "happened"
        last = (
            (self._voucher is not None, "voucher"),
            (self._card is not None, "card"),
            (bool(self._points), "points"),
            (bool(self._status), "status"),
        )
        return next((field for there, field in last if there), "happened")

    @property
    def _cents(self) -> int:
        return self.number * 37 % 100_000 - 20_000

    @property
    def _reason(self) -> str:
        """The reason, empty for some: a field that is not set is the default."""
        return f"Grund {self.number % 11}: ü" if self.number % 3 else ""

    @property
    def _status(self) -> int:
        return self.number % len(STATUSES)

    @property
    def _lines(self) -> list[dict[str, Any]]:
        return [
            {
                "sku": f"sku-{self.number % 17}-{at}",
                "quantity": at,
                "price": _money(self.number + at, self.number * at),
            }
            for at in range(self.number % 3)
        ]

    @property
    def _points(self) -> dict[str, int]:
        return {f"scheme-{at}": self.number << at for at in range(self.number % 3)}

    @property
    def _card(self) -> str | None:
        """The network of the card, the first of the two ways to pay; empty for some."""
        if self.number % 5 > 2:
            return None
        return ("", "visa", "maestro")[self.number % 5]

    @property
    def _voucher(self) -> str | None:
        """The voucher, the second way; there are orders without any."""
        return f"voucher-{self.number}" if self.number % 5 == 3 else None


def _money(number: int, cents: int) -> dict[str, Any]:
    return {"currency": CURRENCIES[number % len(CURRENCIES)], "cents": cents}


def events(day: datetime, count: int) -> list[Event]:
    """Return the events of one day, evenly over the day."""
    first = day.toordinal() * 10_000
    return [
        Event(
            number=first + number,
            at=day + timedelta(seconds=number * DAY_S // count, microseconds=number * 1013),
        )
        for number in range(count)
    ]
