"""What a collection found, kept and deleted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.format.keys import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Heap:
    """Some objects and their bytes."""

    objects: int = 0
    size_bytes: int = 0

    def __add__(self, other: Heap) -> Heap:
        return Heap(
            objects=self.objects + other.objects, size_bytes=self.size_bytes + other.size_bytes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelledGrant:
    """A grant that was given up; `committed`: rows stay there, else a gap is left."""

    interval: Interval
    request: Request
    plan: keys.PlanKey
    planned_at: datetime
    committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """One run of gc. `deleted` False: a dry run, in which nothing was swapped or deleted.

    `version` is that of the root which was marked from, `oldest` the oldest version that readers may still read, None
    where nothing is committed. `kept` and `garbage` count objects by kind; `examples` are a few keys of garbage by kind.
    `foreign` are the first keys below the lake root that tallystick never wrote: they stay. `remarks` are in words.
    """

    uri: str
    pipeline: str
    deleted: bool
    version: int
    oldest: int | None
    cancelled: tuple[CancelledGrant, ...]
    kept: Mapping[Kind, Heap]
    garbage: Mapping[Kind, Heap]
    examples: Mapping[Kind, tuple[str, ...]]
    foreign: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def total(self) -> Heap:
        """All garbage."""
        return sum(self.garbage.values(), Heap())

    @property
    def total_kept(self) -> Heap:
        """All that stays."""
        return sum(self.kept.values(), Heap())
