"""Notes of calls, for receivers that cannot be queried for what they have received. Pure.

A call is one request or one e-mail for one row. A note is written once and never changes:

    Calls   the calls `first <= number < end` of one plan are acknowledged
    Call    one try at one call: it is about to be made, was certainly not accepted, or is acknowledged

The state of a Call is in its object's key, so an operator can change the state by copying the object. A note contains no
values of the row: notes are kept permanently, and addresses must not be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tallystick.format import keys
from tallystick.format.codec import StoredObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls(StoredObject):
    """A range of calls of one plan, all acknowledged. `interval` is formatted as a part of a key."""

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
        """The key of this note."""
        return keys.calls(self.output, self.interval, self.plan, self.first, self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(StoredObject):
    """One try at one call: its idempotency key, the number of its row, and the publisher that wrote the note.

    `publisher` distinguishes two publishers that write the same note at the same time.
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
