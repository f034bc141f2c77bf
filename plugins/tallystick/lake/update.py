"""What a swap makes of a root."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from tallystick.format.record import CommittedInterval
from tallystick.format.root import RootTable, RootTopic
from tallystick.protocol.ledger import Ledger

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Generic[T]):
    """What a swap makes of the root: tables, topics and an edited ledger, the intervals it commits, and its answer.

    `outputs` None: those of the root stay as they are.
    """

    tables: Mapping[str, RootTable]
    topics: Mapping[str, RootTopic]
    ledger: Ledger
    value: T
    committed: tuple[CommittedInterval, ...] = ()
    outputs: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled(Generic[T]):
    """The root says already what the caller wants: no swap is needed."""

    value: T
