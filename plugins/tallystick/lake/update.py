"""What the step of a swap returns: the next root's parts, or that none is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from tallystick.errors import TallystickError
from tallystick.format.record import CommittedInterval
from tallystick.format.root import RootTable, RootTopic
from tallystick.protocol.ledger import Ledger

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Update(Generic[T]):
    """The next root: tables, topics, an edited ledger, and the intervals that it commits. The swap returns `value`.

    `outputs` None: those of the root stay as they are. `then_raise`: the swap raises it once the root is swapped, for a
    refusal that changes the root too.
    """

    tables: Mapping[str, RootTable]
    topics: Mapping[str, RootTopic]
    ledger: Ledger
    value: T | None = None
    then_raise: TallystickError | None = None
    committed: tuple[CommittedInterval, ...] = ()
    outputs: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoUpdate(Generic[T]):
    """The root needs no swap: the swap returns `value`, or raises `then_raise` without another look at the root."""

    value: T | None = None
    then_raise: TallystickError | None = None
