"""The result of a gc run: what it found, kept and deleted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.format.keys import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Heap:
    """A number of objects and their total size in bytes."""

    objects: int = 0
    size_bytes: int = 0

    def __add__(self, other: Heap) -> Heap:
        return Heap(
            objects=self.objects + other.objects, size_bytes=self.size_bytes + other.size_bytes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelledGrant:
    """A grant that gc cancelled, or would cancel. If `committed`, the interval keeps its rows; if not, a gap remains."""

    interval: Interval
    request: Request
    plan: keys.PlanKey
    planned_at: datetime
    committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """The result of one gc run. If `deleted` is False, it was a dry run: nothing was swapped or deleted.

    `version` is the version of the root that gc marked from. `oldest` is the oldest version that stays readable, or
    None if nothing is committed. `kept` and `garbage` count objects by kind; `examples` contains a few keys of garbage
    by kind. `foreign` contains the first keys below the lake URI that tallystick did not write; these objects stay.
    `remarks` are sentences for the operator.
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
        """The sum of all garbage."""
        return sum(self.garbage.values(), Heap())

    @property
    def total_kept(self) -> Heap:
        """The sum of all kept objects."""
        return sum(self.kept.values(), Heap())
