"""The loop of the swap that grants: decide on the root as it stands, and leave what one try does to `granting`."""

from __future__ import annotations

from datetime import datetime

from tallystick.errors import InvalidRequest, Superseded
from tallystick.lake import Change, Lake, Settled, View
from tallystick.params import EPOCH, wanted_interval
from tallystick.pipeline import LATENESS_MAX
from tallystick.plan.granting import Granting
from tallystick.plan.question import Asked, Log, Planned, answered
from tallystick.protocol import decide, keys
from tallystick.protocol.interval import Interval
from tallystick.protocol.ledger import Ledger


def plan(lake: Lake, log: Log, asked: Asked) -> Planned:
    """Grant the run what it may have of its interval and return its plans.

    Safe to repeat: the same request finds its own grants in the root and gets the same plans; a plan that was written
    for a root that did not land is never named by any root (C1, C2). Raises Superseded, InvalidRequest, NotYet,
    OutsideRetention, IdentityChanged, SchemaChanged, LogDamaged, and what the lake and the log raise.
    """
    wanted = wanted_interval(asked.pipeline, asked.params, asked.dates, now=lake.world.now())
    lake.open(asked.pipeline.name)
    answer = lake.swap(lambda view: _step(view, log, asked, wanted))
    if isinstance(answer, InvalidRequest):
        raise answer
    return answer


def _step(
    view: View, log: Log, asked: Asked, wanted: Interval | datetime
) -> Change[Planned | InvalidRequest] | Settled[Planned | InvalidRequest]:
    if isinstance(wanted, datetime):
        # An entry of this run ends at run_after less the lateness of its time: none is further back.
        tail = view.tail(wanted - LATENESS_MAX)
        open_end = decide.open_interval(tail, asked.request, end=wanted, first=asked.first)
        if open_end is None:
            return Settled(value=Planned(interval=None, version=view.root.version))
        wanted = open_end
    if wanted.start < EPOCH:
        raise InvalidRequest(
            f"{wanted} begins before 1970, where Kafka's timestamps begin.",
            next_step="use a later start_date, or a later `from`.",
        )
    ledger = view.ledger(wanted.start, wanted.end)
    intent = _intent(ledger, asked, wanted)
    if isinstance(intent, decide.CutThrough):
        return _refuse_cut(view, ledger, intent, wanted)
    if not intent.grants and not intent.cancelled:
        return Settled(value=answered(intent, wanted, view.root.version, ()))
    view.lake.prove()
    return Granting(view, log, asked, ledger.copy()).grant(intent, wanted)


def _intent(ledger: Ledger, asked: Asked, wanted: Interval) -> decide.Intent | decide.CutThrough:
    params = asked.params
    wish = decide.Wish(
        interval=wanted,
        fingerprint=asked.fingerprint,
        replace=params.mode == "replace",
        force=params.force,
        take_over=params.take_over,
    )
    decision = decide.decide_plan(ledger, asked.request, wish)
    if isinstance(decision, decide.Overtaken):
        raise Superseded(
            f"{asked.request} asked for {wanted} before, and it has gone to {decision.by or 'others'} since.",
            next_step="nothing, if that was meant; else clear this run's plan task to ask anew.",
        )
    return decision


def _refuse_cut(
    view: View, ledger: Ledger, cut: decide.CutThrough, wanted: Interval
) -> Change[Planned | InvalidRequest] | Settled[Planned | InvalidRequest]:
    first, last = (keys.instant(at) for at in (cut.entry.interval.start, cut.entry.interval.end))
    refusal = InvalidRequest(
        f"{wanted} cuts through the committed interval {cut.entry.interval}.",
        next_step=f"intervals are replaced whole: move the cut to {first} or to {last}.",
    )
    if not cut.withdrawn:
        return Settled(value=refusal)
    edited = ledger.copy()
    for entry in cut.withdrawn:
        edited.cancel(entry.interval)
    return Change(tables=view.root.tables, topics=view.root.topics, ledger=edited, value=refusal)
