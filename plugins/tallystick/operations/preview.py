"""The use case `preview`: compute what a run would be granted of an interval, and write nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from tallystick.errors import InvalidRequest, OutsideRetention
from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.format.page import Entry
from tallystick.lake import Lake, Snapshot
from tallystick.protocol import adoption, boundaries, planning

What = Literal["plan", "replace", "stays", "held", "cancel"]
# A run that does not exist, so every request in the ledger is of another run.
_NO_RUN = Request(dag="tally", run="plan", clear=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewPart:
    """One part of the requested interval. `owner`: the request that committed it or holds its grant; None for a gap."""

    interval: Interval
    what: What
    owner: Request | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The parts that a new run would get under one root. `boundaries`: how many boundaries its swap would set."""

    uri: str
    pipeline: str
    version: int
    interval: Interval
    parts: tuple[PreviewPart, ...]
    boundaries: int


def preview(
    lake: Lake, interval: Interval, *, replace: bool = False, take_over: bool = False
) -> Preview:
    """Return what the plan task of a new run would be granted, without granting it.

    Raises InvalidRequest if the interval covers a part of a committed interval, and OutsideRetention if a replacement
    would lose rows of a topic that is read no more: that run would be refused, too. Raises the errors of the lake.
    """

    def from_snapshot(snapshot: Snapshot) -> Preview:
        ledger = snapshot.ledger(interval.start, interval.end)
        options = planning.PlanOptions(
            interval=interval,
            fingerprint="",
            replace=replace,
            take_over=take_over,
            cuts=adoption.cuts(snapshot.root.topics),
        )
        decision = planning.decide_plan(ledger, _NO_RUN, options)
        if isinstance(decision, planning.PartialOverlap):
            one = decision.entry.interval
            raise InvalidRequest(
                f"{interval} splits the committed interval {one}.",
                hint=f"move that end to {keys.instant(one.start)} or to {keys.instant(one.end)}: intervals are replaced "
                "whole.",
            )
        if isinstance(decision, planning.RequestSuperseded):
            raise InvalidRequest(
                f"the ledger contains the run {_NO_RUN}, a name that is reserved for the preview.",
                hint="rename the DAG `tally`.",
            )
        replaced = (g.interval for g in decision.grants if g.before and g.before.committed)
        if (kept := adoption.last_copy(ledger, snapshot.root.topics, replaced)) is not None:
            raise OutsideRetention(kept.message, hint=kept.hint)
        return Preview(
            uri=lake.store.uri,
            pipeline=snapshot.root.pipeline,
            version=snapshot.root.version,
            interval=interval,
            parts=_parts(decision),
            boundaries=len(boundaries.missing_boundaries(ledger, decision.grants)),
        )

    return lake.read(from_snapshot)


def _parts(decision: planning.PlanDecision) -> tuple[PreviewPart, ...]:
    parts: list[PreviewPart] = []
    for grant in decision.grants:
        before = grant.before.committed if grant.before else None
        owner = before.request if before else None
        what: What = "replace" if before else "plan"
        parts.append(PreviewPart(interval=grant.interval, what=what, owner=owner))
    for entry in decision.covered:
        if entry.committed is not None:
            parts.append(
                PreviewPart(interval=entry.interval, what="stays", owner=entry.committed.request)
            )
    parts += _granted(decision.held, "held")
    parts += _granted(decision.cancelled, "cancel")
    return tuple(sorted(parts, key=lambda part: (part.interval, part.what)))


def _granted(entries: Iterable[Entry], what: What) -> Iterator[PreviewPart]:
    for entry in entries:
        if entry.granted is not None:
            yield PreviewPart(interval=entry.interval, what=what, owner=entry.granted.request)
