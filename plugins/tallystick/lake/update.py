"""The results of a swap's step: the parts of the next root, or that no swap is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

from tallystick.errors import TallystickError
from tallystick.format import keys
from tallystick.format.compaction import CompactionGrant
from tallystick.format.record import CommittedInterval
from tallystick.format.registrations import Registration
from tallystick.format.root import RootTable, RootTopic
from tallystick.protocol.ledger import Ledger

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Update(Generic[T]):
    """The next root: tables, topics, an edited ledger, and the intervals that it commits. The swap returns `value`.

    `outputs`, `registrations`, `pipeline`: if None, the root's outputs, its registrations or the pipeline's name are
    unchanged. `declares`: the swap is that of a declaration, whose `reader_grace` the root gets; otherwise the root keeps
    its own. `then_raise`: an error that is raised after the root is swapped, for a refusal that also changes the root.
    `compactions`: those that the swap publishes. `compacting`: the granted ones after it; if None, they are unchanged.
    """

    tables: Mapping[str, RootTable]
    topics: Mapping[str, RootTopic]
    ledger: Ledger
    value: T | None = None
    then_raise: TallystickError | None = None
    committed: tuple[CommittedInterval, ...] = ()
    outputs: Mapping[str, str] | None = None
    pipeline: str | None = None
    compactions: tuple[keys.CompactionKey, ...] = ()
    compacting: tuple[CompactionGrant, ...] | None = None
    registrations: Mapping[str, Registration] | None = None
    declares: bool = False
    reader_grace: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoUpdate(Generic[T]):
    """The result if the root needs no swap: the swap returns `value` or raises `then_raise`, and reads no other root."""

    value: T | None = None
    then_raise: TallystickError | None = None
