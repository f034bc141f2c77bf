"""The loop of the swap that grants: decide on the current root, and let `PlanAttempt` build the update."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from tallystick.errors import InvalidPipeline, InvalidRequest, OutsideRetention, Superseded
from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.format.page import Entry
from tallystick.lake import Lake, NoUpdate, Snapshot, Update
from tallystick.operations.kafka_log import KafkaLog
from tallystick.operations.plan.attempt import PlanAttempt
from tallystick.operations.plan.request import PlanRequest, PlanResult, plan_result
from tallystick.operations.plan.resolving import resolved_pipeline
from tallystick.operations.published_rows import has_published_rows
from tallystick.operations.run_request import EPOCH, SELECTING, requested_interval
from tallystick.operations.schemas import OpenRegistry
from tallystick.pipeline import LATENESS_MAX, Pipeline
from tallystick.protocol import adoption, open_interval, planning
from tallystick.protocol.ledger import Ledger
from tallystick.protocol.staleness import to_refresh
from tallystick.registry.port import SchemaRegistry

Refusal = InvalidRequest | OutsideRetention
logger = logging.getLogger(__name__)


def _no_registry(name: str) -> SchemaRegistry:
    raise InvalidPipeline(
        f"expected a schema registry for connection {name!r}, found none in this process.",
        hint="pass open_registry.",
    )


def plan(
    lake: Lake,
    log: KafkaLog,
    plan_request: PlanRequest,
    *,
    open_registry: OpenRegistry = _no_registry,
) -> PlanResult:
    """Grant the run all that it may have of its interval, and return its plans.

    Safe to repeat: the same request finds its own grants in the root and gets the same plans. If a swap is lost, no root
    names the plans that were written for it (C1, C2).

    Raises NotYet if the interval or the run is not due yet. Raises InvalidRequest if the request is not allowed, such as
    a replacement that cuts through a committed interval. Raises Superseded if the request is not the newest of its run,
    or if a grant that it had is gone. Raises OutsideRetention if the log has lost records of the interval,
    IdentityChanged if a topic is not the one in the ledger, SchemaChanged if the tables cannot take the columns, and
    LogDamaged if the log was truncated. Raises InvalidPipeline if the pipeline does not fit the lake, and the errors of
    the lake, the log and the schema registries, which `open_registry` opens.
    """
    requested = requested_interval(
        plan_request.pipeline, plan_request.params, plan_request.dates, now=lake.runtime.now()
    )
    pipeline = plan_request.pipeline
    lake.open(pipeline.name, renamed_from=pipeline.renamed_from)
    return lake.swap(
        lambda snapshot: _renamed(
            snapshot, pipeline, _step(snapshot, log, plan_request, requested, open_registry)
        )
    )


def _renamed(
    snapshot: Snapshot, pipeline: Pipeline, change: Update[PlanResult] | NoUpdate[PlanResult]
) -> Update[PlanResult] | NoUpdate[PlanResult]:
    """Return the change with the pipeline's new name, if the root has its old one, even if nothing else changes."""
    root = snapshot.root
    if root.pipeline == pipeline.name:
        return change
    logger.info("pipeline %r is renamed to %r", root.pipeline, pipeline.name)
    if isinstance(change, Update):
        return replace(change, pipeline=pipeline.name)
    return Update(
        tables=root.tables,
        topics=root.topics,
        ledger=snapshot.around(()),
        value=change.value,
        then_raise=change.then_raise,
        pipeline=pipeline.name,
    )


def _step(
    snapshot: Snapshot,
    log: KafkaLog,
    plan_request: PlanRequest,
    requested: Interval | datetime,
    open_registry: OpenRegistry,
) -> Update[PlanResult] | NoUpdate[PlanResult]:
    if isinstance(requested, datetime) and plan_request.params.mode in SELECTING:
        entries = snapshot.whole_ledger().entries
        if not entries:
            return NoUpdate(value=PlanResult(interval=None, version=snapshot.root.version))
        end = max(e.interval.end for e in entries)
        requested = Interval(start=entries[0].interval.start, end=end)
    if isinstance(requested, datetime):
        # An entry of this run ends at run_after minus the lateness at that time, so none is further back.
        tail = snapshot.tail(requested - LATENESS_MAX)
        # A cleared run that is not named there may have had an older interval, of which others took a part. Only a
        # cleared run needs the whole ledger: a new run is named nowhere.
        unnamed = plan_request.request.clear > 0 and not open_interval.names(
            tail, plan_request.request
        )
        if unnamed or open_interval.taken_from(tail, plan_request.request):
            tail = snapshot.whole_ledger()  # its entries and their neighbours may be anywhere
        open_end = open_interval.open_interval(
            tail, plan_request.request, end=requested, first=plan_request.first
        )
        if open_end is None:
            return NoUpdate(value=PlanResult(interval=None, version=snapshot.root.version))
        requested = open_end
    if requested.start < EPOCH:
        raise InvalidRequest(
            f"{requested} begins before 1970, the first year of Kafka's timestamps.",
            hint="use a later start_date, or a later `from`.",
        )
    ledger = snapshot.ledger(requested.start, requested.end)
    decision = _decide(snapshot, ledger, plan_request, requested)
    if isinstance(decision, planning.PartialOverlap):
        return _refused(snapshot, ledger, _cut_through(decision, requested), decision.withdrawn)
    replaced = (g.interval for g in decision.grants if g.before and g.before.committed)
    kept = adoption.last_copy(ledger, snapshot.root.topics, replaced)
    if kept is not None and plan_request.params.mode not in SELECTING:
        # (A selection leaves out these intervals one by one.) As for a cut through an interval, cancel the grants of this
        # run's earlier clears: the run can only fail, and they would block other runs.
        own = [
            g.before
            for g in decision.grants
            if g.before and _granted_to(g.before, plan_request.request)
        ]
        refusal = OutsideRetention(kept.message, hint=kept.hint)
        return _refused(snapshot, ledger, refusal, own)
    if not decision.grants and not decision.cancelled:
        return NoUpdate(value=plan_result(decision, requested, snapshot.root.version, ()))
    snapshot.lake.prove()
    resolved = resolved_pipeline(plan_request.pipeline, snapshot.root, log, open_registry)
    plan_request = replace(plan_request, pipeline=resolved.pipeline)
    attempt = PlanAttempt(snapshot, log, plan_request, ledger.copy(), resolved)
    return attempt.grant(decision, requested)


def _decide(
    snapshot: Snapshot, ledger: Ledger, plan_request: PlanRequest, requested: Interval
) -> planning.PlanDecision | planning.PartialOverlap:
    params = plan_request.params
    options = planning.PlanOptions(
        interval=requested,
        fingerprint=plan_request.fingerprint,
        replace=params.mode == "replace",
        force=params.force,
        take_over=params.take_over,
        cuts=adoption.cuts(snapshot.root.topics),
        stale=_stale(snapshot, plan_request, requested),
        selected=_selected(snapshot, plan_request, requested),
    )
    decision = planning.decide_plan(ledger, plan_request.request, options)
    if isinstance(decision, planning.RequestSuperseded):
        raise _superseded(decision, plan_request.request, requested)
    return decision


def _superseded(
    by: planning.RequestSuperseded, request: Request, requested: Interval
) -> Superseded:
    """Build the error: why the request gets nothing, and the one step by which it gets what it asks for."""
    if by.gap is not None:
        return Superseded(
            f"{request} was planned before, and {by.gap} of {requested} is no longer granted to any run: a grant was "
            "released, or cancelled by gc.",
            hint="clear this run's plan task to plan it. This task may be a late copy, so it gets nothing.",
        )
    if by.by == request:
        return Superseded(
            f"{request} was planned before, and its rows of {requested} were committed by other code than is deployed "
            "now.",
            hint="clear this run's plan task to replace them.",
        )
    if not by.by.same_run(request):
        return Superseded(
            f"{request} requested {requested} before, and {by.by} has taken it since.",
            hint="do nothing if that was intended; otherwise clear this run's plan task to request it again.",
        )
    first, last = (keys.instant(at) for at in (requested.start, requested.end))
    replaces = ", mode=replace" if by.replaces else ""
    if by.cuts is not None:
        replaces += (
            f", with {first} or {last} moved to an end of the committed interval {by.cuts.interval}"
        )
    return Superseded(
        f"{request} requests {requested}; the ledger has a later request of the same run there: clear {by.by.clear}. "
        "Either this task is a late copy, or Airflow counts the clears of this run from 0 again: the DAG or run was "
        "deleted, or the metadata database is new.",
        hint="do nothing if the run was cleared meanwhile. If Airflow counts again, press Trigger with "
        f"from={first}, to={last}, take_over=true{replaces}.",
    )


def _stale(
    snapshot: Snapshot, plan_request: PlanRequest, requested: Interval
) -> frozenset[Interval]:
    """Return the stale intervals that this run committed: a Clear replaces them."""
    if plan_request.params.mode in SELECTING or plan_request.pipeline.lookback is None:
        return frozenset()
    there = snapshot.ledger(requested.start, requested.end).overlapping(requested)
    own = [e for e in there if e.committed and e.committed.request.same_run(plan_request.request)]
    return frozenset(snapshot.stale_among(e.interval for e in own))


def _selected(
    snapshot: Snapshot, plan_request: PlanRequest, requested: Interval
) -> frozenset[Interval] | None:
    """Return the intervals that a selecting mode replaces, None for another mode.

    `PlanAttempt` limits them to the maximum of one run, and to those that can be read again.
    """
    mode = plan_request.params.mode
    if mode not in SELECTING:
        return None
    entries = snapshot.whole_ledger().entries
    final = [o.name for o in plan_request.pipeline.planned_outputs if o.replaced == "refuse"]
    held = {e.interval: e for e in entries}

    def can(interval: Interval) -> bool:
        # Rows in an output that takes no second publication stay, and do not block the other intervals.
        return not any(has_published_rows(snapshot.lake, held[interval], name) for name in final)

    if mode == "refresh":
        return to_refresh(entries, plan_request.fingerprint, requested, can)
    with_dead = (e.interval for e in entries if e.committed and e.committed.totals.dead_letters)
    return frozenset(one for one in with_dead if requested.covers(one) and can(one))


def _granted_to(entry: Entry, request: Request) -> bool:
    return entry.granted is not None and entry.granted.request.same_run(request)


def _cut_through(cut: planning.PartialOverlap, requested: Interval) -> InvalidRequest:
    first, last = (keys.instant(at) for at in (cut.entry.interval.start, cut.entry.interval.end))
    return InvalidRequest(
        f"{requested} splits the committed interval {cut.entry.interval}.",
        hint=f"move that end to {first} or to {last}: intervals are replaced whole.",
    )


def _refused(
    snapshot: Snapshot, ledger: Ledger, refusal: Refusal, withdrawn: Sequence[Entry]
) -> Update[PlanResult]:
    if not withdrawn:
        raise refusal
    edited = ledger.copy()
    for entry in withdrawn:
        edited.cancel(entry.interval)
    return Update(
        tables=snapshot.root.tables, topics=snapshot.root.topics, ledger=edited, then_raise=refusal
    )
