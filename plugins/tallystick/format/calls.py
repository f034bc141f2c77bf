"""Notes of calls: what was sent to a receiver that cannot be asked. Pure.

A call is one request or one e-mail for one row. A note is written once and never changes:

    Calls   the calls `first <= number < end` of one plan are acknowledged
    Call    one try at one call: it is about to be made, was not taken for certain, or is acknowledged

Which of the three a Call says is in its object's key, so that a person can turn one into another by a copy. No note holds
a row's values: they stay for ever, and addresses must not.
"""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.format import keys
from tallystick.format.canonical import built, decode, encode

CALLS_FORMAT = "tallystick.calls/1"
CALL_FORMAT = "tallystick.call/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Some calls of one plan, all of them acknowledged. `interval` is spelt as a part of a key."""

    output: str
    interval: str
    generation: int
    plan: str
    first: int
    end: int

    def __post_init__(self) -> None:
        keys.calls(self.output, self.interval, self.plan, self.first, self.end)

    @property
    def key(self) -> str:
        """Where it is."""
        return keys.calls(self.output, self.interval, self.plan, self.first, self.end)

    def encode(self) -> bytes:
        """Return the stored form."""
        return encode({"format": CALLS_FORMAT} | {n: getattr(self, n) for n in self.__slots__})


def parse_calls(body: bytes, *, where: str) -> Calls:
    """Read the stored form; raises Corrupt."""
    f = decode(body, where=where, format_name=CALLS_FORMAT)
    output, interval, plan = (f.take(n, str) for n in ("output", "interval", "plan"))
    generation, first, end = (f.take(n, int) for n in ("generation", "first", "end"))
    f.done()
    return built(
        where,
        lambda: Calls(
            output=output, interval=interval, generation=generation, plan=plan, first=first, end=end
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One try at one call: its idempotency key, the row that speaks for it, and which publisher made the note.

    `publisher` tells apart two that write the same at once.
    """

    output: str
    key: str
    interval: str
    generation: int
    plan: str
    row: int
    publisher: str

    def __post_init__(self) -> None:
        keys.check_uuid(self.plan)
        keys.check_uuid(self.publisher)

    def encode(self) -> bytes:
        """Return the stored form."""
        return encode({"format": CALL_FORMAT} | {n: getattr(self, n) for n in self.__slots__})


def parse_call(body: bytes, *, where: str) -> Call:
    """Read the stored form; raises Corrupt."""
    f = decode(body, where=where, format_name=CALL_FORMAT)
    output, key, interval = (f.take(n, str) for n in ("output", "key", "interval"))
    plan, publisher = (f.take(n, str) for n in ("plan", "publisher"))
    generation, row = f.take("generation", int), f.take("row", int)
    f.done()
    return built(
        where,
        lambda: Call(
            output=output,
            key=key,
            interval=interval,
            generation=generation,
            plan=plan,
            row=row,
            publisher=publisher,
        ),
    )
