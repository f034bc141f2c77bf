"""One try of the swap that grants: identity, tables, boundaries, one frozen plan per grant, and the ledger's entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeGuard

from tallystick.errors import (
    IdentityChanged,
    InvalidPipeline,
    InvalidRequest,
    LogDamaged,
    OutsideRetention,
)
from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.format.offsets import Position
from tallystick.format.page import SERVED_MAX, Boundary, Committed, Entry, Granted, Totals
from tallystick.format.plan import Plan, PlannedRange, PlannedTopic
from tallystick.format.record import CommittedInterval
from tallystick.format.registries import PlannedRegistry
from tallystick.format.root import RootTable, RootTopic
from tallystick.lake import Snapshot, Update
from tallystick.operations.kafka_log import KafkaLog, TopicDescription
from tallystick.operations.plan.closed import closed_topics, positions_without_lookup
from tallystick.operations.plan.earlier import plans_with_schemas
from tallystick.operations.plan.request import PlannedInterval, PlanRequest, PlanResult, plan_result
from tallystick.operations.plan.resolving import ResolvedPipeline
from tallystick.operations.plan.tables import evolved_tables, planned_tables
from tallystick.operations.published_rows import has_published_rows
from tallystick.operations.run_request import AHEAD_MAX, SELECTING
from tallystick.protocol import adoption, boundaries, planning
from tallystick.protocol.ledger import Ledger
from tallystick.protocol.publishing import outputs_with_plan
from tallystick.protocol.registering import with_declared
from tallystick.protocol.staleness import to_refresh
from tallystick.runtime.version import VERSION

# For each grant, a plan is written before the swap. If another process swaps meanwhile, all these plans are void.
GRANTS_MAX = 500


class PlanAttempt:
    """One try of the swap. All that it computes is valid for one root only, and is discarded if the swap is lost."""

    def __init__(
        self,
        snapshot: Snapshot,
        log: KafkaLog,
        plan_request: PlanRequest,
        ledger: Ledger,
        resolved: ResolvedPipeline,
    ) -> None:
        self.schemas = resolved.schemas
        # In the first interval of a ledger a topic begins at the interval's start, not at the start of its log.
        self._found_later = resolved.new_by_pattern if snapshot.root.topics else frozenset()
        self.snapshot, self.log, self.plan_request, self.ledger = (
            snapshot,
            log,
            plan_request,
            ledger,
        )
        self.lake, self.root = snapshot.lake, snapshot.root
        described = log.describe([t.name for t in plan_request.pipeline.inputs])
        # By the ledger's names: `events@2` if another incarnation of `events` was adopted.
        self.topics_seen = {self.root.open_topic(name): seen for name, seen in described.items()}
        self._same_history: set[tuple[str, datetime]] = set()
        self._schemas_compared: set[keys.PlanKey] = set()

    def grant(self, decision: planning.PlanDecision, requested: Interval) -> Update[PlanResult]:
        """Build the update that grants `decision`. Safe to repeat: a plan counts only if a root names it (C1).

        Raises the errors of `plan` that depend on the root and on Kafka.
        """
        selects = self.plan_request.params.mode in SELECTING
        if len(decision.grants) > GRANTS_MAX and not selects:
            raise InvalidRequest(
                f"{requested}: expected at most {GRANTS_MAX} intervals for one run to plan, found "
                f"{len(decision.grants)}.",
                hint="request a shorter from/to, run by run; or use a backfill, which creates a run for each interval.",
            )
        topics = self._topics()
        tables = evolved_tables(
            self.root, self.plan_request.pipeline, new_uuid=self.lake.runtime.uuid
        )
        outputs = self._outputs(decision)
        registrations = with_declared(
            self.root.registrations, self.plan_request.pipeline.targets, self.root.record
        )
        origins = {name: topic.origins for name, topic in topics.items()}
        set_now = self._set_boundaries(decision, topics, origins)
        for entry in decision.cancelled:
            self.ledger.cancel(entry.interval)
        intervals: list[PlannedInterval] = []
        committed: list[CommittedInterval] = []
        left: dict[Interval, OutsideRetention] = {}
        grants = decision.grants
        if selects:
            grants, left = self._replaceable(decision, requested, topics, origins)
            # Cancel grants of this run's earlier clears that are not granted anew: they would block other runs.
            chosen = {grant.interval for grant in grants}
            old = [g.before for g in decision.grants if g.interval not in chosen]
            dropped = [entry for entry in old if self._is_own(entry)]
            for entry in dropped:
                self.ledger.cancel(entry.interval)
            decision = replace(decision, cancelled=(*decision.cancelled, *dropped))
        for grant in grants:
            plan = self._freeze(grant, topics, tables, origins, set_now)
            at_once = plan.empty and not self._may_have_rows(grant)
            if at_once:
                committed.append(self._commit_at_once(grant, plan))
            else:
                self._grant(grant, plan)
            intervals.append(
                PlannedInterval(interval=grant.interval, plan=plan.key, committed=at_once)
            )
        if left and not intervals:
            return self._nothing_to_replace(next(iter(left.values())), decision.cancelled)
        result = plan_result(decision, requested, self.root.version + 1, intervals)
        return Update(
            tables=tables,
            topics=topics,
            ledger=self.ledger,
            committed=tuple(committed),
            outputs=outputs,
            registrations=registrations,
            declares=True,
            reader_grace=self.plan_request.pipeline.reader_grace,
            value=replace(result, left=tuple(left)),
        )

    def _is_own(self, entry: Entry | None) -> TypeGuard[Entry]:
        granted = entry.granted if entry is not None else None
        return granted is not None and granted.request.same_run(self.plan_request.request)

    def _nothing_to_replace(
        self, error: OutsideRetention, withdrawn: Sequence[Entry]
    ) -> Update[PlanResult]:
        """Refuse a selection of which the log allows nothing, and withdraw the grants of the run's earlier clears."""
        refusal = OutsideRetention(
            error.message,
            hint="restore the topic; or leave the old rows as they are. To replace them with what the log still "
            "has, press Trigger with from and to of that interval, mode=replace and accept_loss=true.",
        )
        own = [entry for entry in withdrawn if self._is_own(entry)]
        if not own:
            raise refusal
        ledger = self.snapshot.whole_ledger().copy()
        for entry in own:
            ledger.cancel(entry.interval)
        return Update(
            tables=self.root.tables, topics=self.root.topics, ledger=ledger, then_raise=refusal
        )

    def _replaceable(
        self,
        decision: planning.PlanDecision,
        requested: Interval,
        topics: Mapping[str, RootTopic],
        origins: Mapping[str, tuple[int, ...]],
    ) -> tuple[tuple[planning.Grant, ...], dict[Interval, OutsideRetention]]:
        """Return the grants of a selecting mode that the log allows, at most `GRANTS_MAX`, and the errors of the others.

        An interval whose records cannot be read again keeps its rows and does not block the others. Since its rows do not
        change, it does not make the intervals stale whose lookback reads them.
        """
        offered = {grant.interval: grant for grant in decision.grants}
        chosen: list[planning.Grant] = []
        left: dict[Interval, OutsideRetention] = {}

        def can(interval: Interval) -> bool:
            grant = offered.get(interval)
            if grant is None or len(chosen) == GRANTS_MAX:
                return False  # another run holds it, or the next run gets it
            if grant.before is None or grant.before.committed is None:
                return False  # the run's own earlier grant of a gap: a selection fills none
            try:
                self._can_be_read_again(grant, topics, origins)
            except OutsideRetention as error:
                left[interval] = error
                return False
            chosen.append(grant)
            return True

        if self.plan_request.params.mode == "refresh":
            entries = self.snapshot.whole_ledger().entries
            to_refresh(entries, self.plan_request.fingerprint, requested, can)
        else:
            for interval in offered:
                can(interval)
        return tuple(chosen), left

    def _can_be_read_again(
        self,
        grant: planning.Grant,
        topics: Mapping[str, RootTopic],
        origins: Mapping[str, tuple[int, ...]],
    ) -> None:
        """Raise OutsideRetention if the log has lost records of the interval, or if it has rows of a closed topic."""
        kept = adoption.last_copy(self.ledger, self.root.topics, [grant.interval])
        if kept is not None:
            raise OutsideRetention(kept.message, hint=kept.hint)
        for name in self.topics_seen:
            self._planned_topic(name, grant.interval, topics[name], origins, frozenset())

    # -------------------------------------------------------- identity

    def _topics(self) -> dict[str, RootTopic]:
        topics = dict(self.root.topics)
        still_open = {name for name, topic in topics.items() if topic.closed is None}
        gone = sorted(keys.kafka_topic(name) for name in still_open - set(self.topics_seen))
        if gone:
            raise InvalidPipeline(
                f"topic {gone[0]!r} is in the ledger of {self.lake.store.uri} and no longer in the pipeline.",
                hint="declare it again: a topic cannot be removed from a ledger. To read fewer topics, use a new "
                "pipeline with its own warehouse.",
            )
        for name, seen in self.topics_seen.items():
            known = topics.get(name)
            starts = tuple(p.log_start for p in seen.partitions)
            if known is None:
                topics[name] = RootTopic(
                    topic_id=seen.topic_id,
                    cluster_id=seen.cluster_id,
                    origins=self._origins(name, starts),
                )
                continue
            self._same_incarnation(name, known, seen)
            # A partition that was added later began at 0. Offsets that it lost before its first plan count as lost.
            grown = (0,) * (len(starts) - len(known.origins))
            topics[name] = replace(known, origins=known.origins + grown)
        return topics

    def _origins(self, name: str, starts: tuple[int, ...]) -> tuple[int, ...]:
        """Return where a new topic begins: at its declared begin, or at the start of its log."""
        topic = keys.kafka_topic(name)
        begin = next(t.begin for t in self.plan_request.pipeline.inputs if t.name == topic)
        if begin is None:
            return starts
        at_ms = round(begin.timestamp() * 1000)
        latest_ms = round((self.lake.runtime.now() + AHEAD_MAX).timestamp() * 1000)
        return tuple(p.offset for p in self.log.boundary(topic, at_ms, starts, latest_ms=latest_ms))

    def _same_incarnation(self, name: str, known: RootTopic, seen: TopicDescription) -> None:
        topic = keys.kafka_topic(name)
        if (known.topic_id, known.cluster_id) != (seen.topic_id, seen.cluster_id):
            raise IdentityChanged(
                f"topic {topic}: expected id {known.topic_id} in cluster {known.cluster_id} as in the ledger, found id "
                f"{seen.topic_id} in cluster {seen.cluster_id}.",
                hint="the topic was deleted and created anew, or the connection points at another cluster. Correct the "
                f"connection; or, if this topic is to follow the old one for good, run `tally topic adopt {topic}`.",
            )
        if len(seen.partitions) < len(known.origins):
            raise IdentityChanged(
                f"topic {topic}: expected at least {len(known.origins)} partitions as in the ledger, found "
                f"{len(seen.partitions)}.",
                hint="check the connection: a topic never loses partitions within one incarnation.",
            )

    def _outputs(self, decision: planning.PlanDecision) -> dict[str, str]:
        """Return the root's outputs and those that the pipeline declares.

        Raises InvalidPipeline if an output has another target in the root. Raises InvalidRequest if a grant would
        publish an interval twice to an output that takes no second publication.
        """
        outputs = dict(self.root.outputs)
        for declared in self.plan_request.pipeline.planned_outputs:
            known = outputs.setdefault(declared.name, declared.target)
            if known != declared.target:
                raise InvalidPipeline(
                    f"output {declared.name}: expected target {known} as in the lake, found {declared.target} in the "
                    "pipeline.",
                    hint="declare the old target, or an output of another name: an output never changes its target.",
                )
            if declared.replaced == "refuse":
                self._refuse_second_send(declared.name, decision)
        return outputs

    def _refuse_second_send(self, output: str, decision: planning.PlanDecision) -> None:
        for grant in decision.grants:
            if grant.before is not None and has_published_rows(self.lake, grant.before, output):
                raise InvalidRequest(
                    f"{grant.interval} is published to output {output}, which does not allow a replacement.",
                    hint="leave the interval as it is; or declare how the output handles a replacement: "
                    "replaced='correct', 'compensate' or 'once'.",
                )

    # -------------------------------------------------------- boundaries

    def _set_boundaries(
        self,
        decision: planning.PlanDecision,
        topics: Mapping[str, RootTopic],
        origins: Mapping[str, tuple[int, ...]],
    ) -> frozenset[datetime]:
        missing = boundaries.missing_boundaries(self.ledger, decision.grants)
        for at in missing:
            lows = boundaries.floors(self.ledger, at, origins)
            at_ms = round(at.timestamp() * 1000)
            latest_ms = round((self.lake.runtime.now() + AHEAD_MAX).timestamp() * 1000)
            accept_loss = self.plan_request.params.accept_loss
            known = positions_without_lookup(self.ledger, topics, at, accept_loss=accept_loss)
            searched: dict[str, tuple[Position, ...]] = {}
            for name in topics.keys() - known:
                topic = keys.kafka_topic(name)
                looked_up = tuple(self.log.boundary(topic, at_ms, lows[name], latest_ms=latest_ms))
                # A partition that was added after `describe` has no origin yet: the next plan covers it.
                searched[name] = looked_up[: len(origins[name])]
            left, _ = self.ledger.neighbours(at)
            self._refuse_unproven(at, searched, left)
            found = {name: known[name] if name in known else searched[name] for name in topics}
            self.ledger.set_boundary(boundaries.clamped(self.ledger, at, found, origins))
        return frozenset(missing)

    def _refuse_unproven(
        self, at: datetime, found: Mapping[str, Sequence[Position]], left: Boundary | None
    ) -> None:
        begin = self.plan_request.pipeline.begin
        if self.plan_request.params.accept_loss or (begin is not None and at <= begin):
            return
        at_ms = round(at.timestamp() * 1000)
        for name, positions in found.items():
            if left is not None and (name in left.positions or keys.incarnation(name) > 1):
                # The range begins at a known offset, so `_planned_range` refuses or records a loss. An adopted
                # incarnation begins at the origins that the operator confirmed.
                continue
            if name in self._found_later:
                continue  # such a topic begins at the start of its log, also if older records have expired
            unproven = self.log.unproven(keys.kafka_topic(name), positions, at_ms)
            for partition, start in unproven.items():
                raise OutsideRetention(
                    f"{name}[{partition}] begins at offset {start}, and has no record before "
                    f"{keys.instant(at)} (offset {positions[partition].offset}), or too few: older records may have "
                    "expired. Ten batches of records before it, or two that are a day older, would prove that none has.",
                    hint="start later; or declare Pipeline(begin=...) at the intended begin of the history; or "
                    "run with accept_loss=true.",
                )

    # -------------------------------------------------------- plans

    def _freeze(
        self,
        grant: planning.Grant,
        topics: Mapping[str, RootTopic],
        tables: Mapping[str, RootTable],
        origins: Mapping[str, tuple[int, ...]],
        set_now: frozenset[datetime],
    ) -> Plan:
        """Write the plan of one grant. Safe to repeat: the key is new, and only the swap makes it count (C1, C2)."""
        interval, params = grant.interval, self.plan_request.params
        before = grant.before.committed if grant.before else None
        plan = Plan(
            key=keys.plan(interval.start, interval.end, self.lake.runtime.uuid()),
            pipeline=self.plan_request.pipeline.name,
            interval=interval,
            generation=grant.generation,
            request=self.plan_request.request,
            fingerprint=self.plan_request.fingerprint,
            replaces=before.plan if before else None,
            topics=(
                *closed_topics(self.ledger, grant, topics, accept_loss=params.accept_loss),
                *(
                    self._planned_topic(name, interval, topics[name], origins, set_now)
                    for name in self.topics_seen
                ),
            ),
            tables=planned_tables(tables, self.plan_request.pipeline),
            spec=self.plan_request.pipeline.to_spec(),
            accept_loss=params.accept_loss,
            accept_compaction=params.accept_compaction,
            planned_at=self.lake.runtime.now(),
            library=VERSION,
            accept_dead_letters=params.accept_dead_letters,
        )
        if self.schemas.needed and not plan.empty:
            plan = replace(plan, registries=self._registries(before, interval))
        self.lake.put_new(plan.key, plan.encode())
        return plan

    def _registries(
        self, replaced: Committed | None, interval: Interval
    ) -> tuple[PlannedRegistry, ...]:
        """Return the schemas for a plan. Raises SchemaIdConflict if an id meant another schema in another plan.

        The other plans are the one that is replaced, and those of the nearest committed intervals with records, on both
        sides: a plan has all schemas of its subjects, so that these are enough.
        """
        others = plans_with_schemas(
            self.ledger, self.snapshot.whole_ledger, interval, replaced=replaced
        )
        for key in sorted(others - self._schemas_compared):
            self._schemas_compared.add(key)
            if (plan := self.lake.plan(key)) is not None:
                self.schemas.check_same(plan.registries)
        self.schemas.check_misfits(self.plan_request.pipeline)
        return self.schemas.registries()

    def _planned_topic(
        self,
        name: str,
        interval: Interval,
        topic: RootTopic,
        origins: Mapping[str, tuple[int, ...]],
        set_now: frozenset[datetime],
    ) -> PlannedTopic:
        start, end = (self.ledger.boundary(at) for at in (interval.start, interval.end))
        assert start is not None
        assert end is not None
        seen = self.topics_seen[name]
        partitions = range(len(topic.origins))
        starts = [start.position(name, p, origins) for p in partitions]
        ends = [end.position(name, p, origins) for p in partitions]
        for at, positions in ((interval.start, starts), (interval.end, ends)):
            if at not in set_now:
                self._refuse_diverged(name, at, positions)
        ranges = tuple(
            self._planned_range(name, p, starts[p], ends[p], seen.partitions[p].log_start)
            for p in partitions
        )
        return PlannedTopic(
            name=name,
            topic_id=seen.topic_id,
            cluster_id=seen.cluster_id,
            compacted=seen.compacted,
            ranges=ranges,
        )

    def _refuse_diverged(self, name: str, at: datetime, positions: Sequence[Position]) -> None:
        if (name, at) in self._same_history:
            return  # checked for the plan of a neighbour interval
        self._same_history.add((name, at))
        problems = self.log.diverged(keys.kafka_topic(name), positions)
        if problems:
            raise LogDamaged(
                f"{name} no longer has the history in which the boundary at {keys.instant(at)} was set: {problems[0]}",
                hint="ask the operators of the cluster before you replace anything: the log was truncated (unclean "
                "leader election?). Committed rows remain.",
            )

    def _planned_range(
        self, name: str, partition: int, start: Position, end: Position, log_start: int
    ) -> PlannedRange:
        readable_from = min(max(start.offset, log_start), end.offset)
        if readable_from > start.offset and not self.plan_request.params.accept_loss:
            raise OutsideRetention(
                f"{name}[{partition}]: expected offsets [{start.offset}, {end.offset}), found a log that begins at "
                f"{log_start}: {readable_from - start.offset} offsets are gone. Nothing was changed.",
                hint="restore the topic; or run with accept_loss=true, which records the loss in the ledger (and "
                "with mode=replace if the interval is committed, or take_over=true if another run holds it).",
            )
        return PlannedRange(
            start=start.offset,
            end=end.offset,
            start_epoch=start.leader_epoch,
            end_epoch=end.leader_epoch,
            readable_from=readable_from,
        )

    # -------------------------------------------------------- entries

    def _grant(self, grant: planning.Grant, plan: Plan) -> None:
        before, request = grant.before, self.plan_request.request
        granted = Granted(plan=plan.key, request=request, generation=grant.generation)
        self.ledger.put(
            Entry(
                interval=grant.interval,
                generation=grant.generation,
                granted=granted,
                committed=before.committed if before else None,
                served=_served(grant, request),
                outputs=before.outputs if before else {},
            )
        )

    def _may_have_rows(self, grant: planning.Grant) -> bool:
        """Return True if an interval without offsets may get rows, or if its committed plan has rows to be dropped.

        With a lookback, a job may have rows for an interval without records, such as windows that end in it.
        """
        if self.plan_request.pipeline.lookback is not None:
            return True
        before = grant.before
        if before is None or before.committed is None:
            return False
        # Its plan may have had a lookback. If the record is gone, the commit task names it in its error.
        chain = self.lake.earlier_commits(before)
        return not chain or any(chain[0].added.values())

    def _commit_at_once(self, grant: planning.Grant, plan: Plan) -> CommittedInterval:
        before, request = grant.before, self.plan_request.request
        self.ledger.put(
            Entry(
                interval=grant.interval,
                generation=grant.generation,
                granted=None,
                committed=Committed(
                    plan=plan.key,
                    request=request,
                    generation=grant.generation,
                    fingerprint=plan.fingerprint,
                    record=self.snapshot.record_key,
                    totals=Totals(),
                ),
                served=_served(grant, request),
                outputs=outputs_with_plan(
                    before.outputs if before else {},
                    plan.key,
                    {o.name: True for o in self.plan_request.pipeline.planned_outputs},
                ),
            )
        )
        return CommittedInterval(
            interval=grant.interval,
            plan=plan.key,
            report=None,
            request=request,
            generation=grant.generation,
            fingerprint=plan.fingerprint,
            replaces=before.committed.record if before and before.committed else None,
            totals=Totals(),
            accounts=(),
            added={},
            dropped={},
        )


def _served(grant: planning.Grant, request: Request) -> tuple[Request, ...]:
    others = (r for r in dict.fromkeys(grant.served) if r != request)
    return (*others, request)[-SERVED_MAX:]
