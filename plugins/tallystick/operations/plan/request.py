"""The request and the result of the use case `plan`, and the Kafka queries that it needs."""

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
    """The offsets of one partition, as the broker returned them."""

    @property
    def log_start(self) -> int:
        """The first offset that the partition still has."""
        ...


class TopicDescription(Protocol):
    """One topic incarnation, as the broker returned it; the index of `partitions` is the partition number."""

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
        """True if cleanup.policy contains `compact`: offsets may be absent then."""
        ...

    @property
    def partitions(self) -> Sequence[PartitionView]:
        """The partitions."""
        ...


class KafkaLog(Protocol):
    """The Kafka queries of planning. The implementation is in tallystick.kafka.planning."""

    def describe(self, topics: Sequence[str]) -> Mapping[str, TopicDescription]:
        """Return identity and offsets of each topic. Raises IdentityChanged if a topic does not exist."""
        ...

    def boundary(
        self, topic: str, at_ms: int, floors: Sequence[int], *, latest_ms: int
    ) -> Sequence[Position]:
        """Return the boundary at `at_ms` per partition, searched from `floors`; skip records later than `latest_ms`.

        Raises NotYet if a boundary is after the last stable offset: an open transaction begins before it.
        """
        ...

    def unproven(self, topic: str, positions: Sequence[Position], at_ms: int) -> Mapping[int, int]:
        """Return the log start of each partition whose log does not prove that it begins before `at_ms`.

        `positions` are the boundary at `at_ms`. The log starts are read after them. One or two records before the
        boundary prove nothing: they may have arrived late.
        """
        ...

    def diverged(self, topic: str, positions: Sequence[Position]) -> Sequence[str]:
        """Return a message for each position at which the log now has another history (KIP-101); empty if none has."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedInterval:
    """One plan of the run: to be staged, or committed already, because it is empty or the run committed it before."""

    interval: Interval
    plan: keys.PlanKey
    committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """The outcome of a plan task.

    `intervals`: the planned intervals of the run. `held`: intervals that are granted to other runs. `covered`: committed
    intervals that stay. `cancelled`: grants that were cancelled. `left`: intervals that a refresh leaves out, because
    their records can no longer be read.
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
    """The input of a plan task: pipeline, job, request, params and dates.

    `first`: the start of the first interval if the ledger is empty and the run has no dates.
    """

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
    """Build the result under root `version`: the plans that the run had before, and those that were granted now."""
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
