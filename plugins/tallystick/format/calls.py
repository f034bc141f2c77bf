"""Notes of calls: what was sent to a receiver that cannot be asked. Pure.

A call is one request or one e-mail for one row. A note is written once and never changes:

    Calls   the calls `first <= number < end` of one plan are acknowledged
    Call    one try at one call: it is about to be made, was not taken for certain, or is acknowledged

Which of the three a Call says is in its object's key, so that a person can turn one into another by a copy. No note holds
a row's values: they stay for ever, and addresses must not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tallystick.format import keys
from tallystick.format.codec import StoredObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls(StoredObject):
    """Some calls of one plan, all of them acknowledged. `interval` is spelt as a part of a key."""

    FORMAT: ClassVar[str] = "tallystick.calls/1"

    output: str
    interval: str
    generation: int
    plan: keys.PlanId
    first: int
    end: int

    def __post_init__(self) -> None:
        keys.calls(self.output, self.interval, self.plan, self.first, self.end)

    @property
    def key(self) -> str:
        """Where it is."""
        return keys.calls(self.output, self.interval, self.plan, self.first, self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(StoredObject):
    """One try at one call: its idempotency key, the row that speaks for it, and which publisher made the note.

    `publisher` tells apart two that write the same at once.
    """

    FORMAT: ClassVar[str] = "tallystick.call/1"

    output: str
    key: str
    interval: str
    generation: int
    plan: keys.PlanId
    row: int
    publisher: str

    def __post_init__(self) -> None:
        keys.check_uuid(self.plan)
        keys.check_uuid(self.publisher)
