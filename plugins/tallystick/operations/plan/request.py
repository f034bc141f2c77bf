"""What a plan is asked, what it asks of Kafka, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.format.offsets import Position
from tallystick.operations.run_request import RunDates, RunParams
from tallystick.pipeline import Pipeline
from tallystick.protocol import planning


class PartitionView(Protocol):
    """Offsets of one partition as the broker answered."""

    @property
    def log_start(self) -> int:
        """The first offset that is still there."""
        ...


class TopicDescription(Protocol):
    """One topic incarnation as the broker answered; the index of `partitions` is the partition number."""

    @property
    def topic_id(self) -> str:
        """The topic's id (KIP-516)."""
        ...

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        ...

    @property
    def compacted(self) -> bool:
        """True where cleanup.policy holds `compact`: offsets may then be absent."""
        ...

    @property
    def partitions(self) -> Sequence[PartitionView]:
        """The partitions."""
        ...


class KafkaLog(Protocol):
    """What planning asks of Kafka. tallystick.kafka.planning is the real one."""

    def describe(self, topics: Sequence[str]) -> Mapping[str, TopicDescription]:
        """Identity and offsets of each topic. Raises for a topic that is not there."""
        ...

    def boundary(
        self, topic: str, at_ms: int, floors: Sequence[int], *, latest_ms: int
    ) -> Sequence[Position]:
        """B(at) per partition, searched from `floors` on, passing over records whose timestamp is after `latest_ms`.

        Raises NotYet before the last stable offset.
        """
        ...

    def unproven(self, topic: str, positions: Sequence[Position], at_ms: int) -> Mapping[int, int]:
        """The partitions whose log does not show that it begins before `at_ms`, with the log start after that look-up.

        `positions` are the boundary at `at_ms`. A record or two before it show nothing: they may have come late.
        """
        ...

    def diverged(self, topic: str, positions: Sequence[Position]) -> Sequence[str]:
        """Say for which positions the log now holds another history (KIP-101); empty where none does."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedInterval:
    """One plan of the run: staged next, or committed already (empty, or by this run earlier)."""

    interval: Interval
    plan: keys.PlanKey
    committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """What the run has: its pieces, what other runs were granted (`held`), what is committed and stays (`covered`).

    `left`: what a refresh leaves out, for the log no longer holds it.
    """

    interval: Interval | None
    version: int
    intervals: tuple[PlannedInterval, ...] = ()
    held: tuple[tuple[Interval, Request], ...] = ()
    covered: tuple[Interval, ...] = ()
    cancelled: tuple[tuple[Interval, Request], ...] = ()
    left: tuple[Interval, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """A run's whole question: which pipeline and job, who asks, with which params, for which dates."""

    pipeline: Pipeline
    job_source: bytes
    request: Request
    params: RunParams
    dates: RunDates
    first: datetime

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the deployed job."""
        return self.pipeline.fingerprint(self.job_source)


def plan_result(
    decision: planning.PlanDecision,
    wanted: Interval,
    version: int,
    intervals: Sequence[PlannedInterval],
) -> PlanResult:
    """Say what the run has under root `version`: what it held before, and the pieces it was granted now."""
    own = [
        PlannedInterval(interval=h.interval, plan=h.plan, committed=h.committed)
        for h in decision.owned
    ]
    return PlanResult(
        interval=wanted,
        version=version,
        intervals=tuple(sorted((*own, *intervals), key=lambda p: p.interval)),
        held=tuple((e.interval, e.granted.request) for e in decision.held if e.granted),
        covered=tuple(e.interval for e in decision.covered),
        cancelled=tuple((e.interval, e.granted.request) for e in decision.cancelled if e.granted),
    )
