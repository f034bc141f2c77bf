"""Dropped guards: each switches one rule of the protocol off, and the explorer must notice.

A mutant is a context manager that patches tallystick's own code for as long as it is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from simulation import actors, explorer
from simulation.simulation import SimulatedTables
from tallystick.errors import RetryLater
from tallystick.format import keys
from tallystick.format.page import Boundary
from tallystick.lake import Lake
from tallystick.operations import commit as commit_module
from tallystick.operations.gc import Collection, collecting, marking
from tallystick.operations.gc.listing import Listing
from tallystick.operations.plan.attempt import PlanAttempt
from tallystick.protocol import adoption, boundaries, committing, planning, retention
from tallystick.store import Applied, Unknown

Mutant = Callable[[], AbstractContextManager[Any]]


def _quiet_invariants() -> AbstractContextManager[Any]:
    # Our own check before each swap would stop most mutants; the oracle must catch them without it.
    return patch("tallystick.lake.lake.check_swap", lambda *_: None)


@contextmanager
def no_if_match() -> Iterator[None]:
    """The root is PUT without a condition."""
    with _quiet_invariants(), patch.object(explorer.Schedule, "honours_conditions", False):
        yield


@contextmanager
def decided_once() -> Iterator[None]:
    """A commit decides on the first root it reads and trusts that on every rebase."""
    real = committing.decide_commit
    first: dict[str, Any] = {}

    def stale(root: Any, entry: Any, plan: Any, **more: Any) -> Any:
        decision = first.setdefault(plan.key, real(root, entry, plan, **more))
        if isinstance(decision, committing.Publish) and entry is not None:
            return replace(decision, before=replace(entry, granted=decision.before.granted))
        return decision

    with _quiet_invariants(), patch.object(commit_module.committing, "decide_commit", stale):
        yield


@contextmanager
def never_already_committed() -> Iterator[None]:
    """AlreadyCommitted is never answered: a repeat publishes again."""
    real = committing.decide_commit

    def forgetful(root: Any, entry: Any, plan: Any, **more: Any) -> Any:
        decision = real(root, entry, plan, **more)
        return (
            committing.Publish(before=entry)
            if isinstance(decision, committing.AlreadyCommitted)
            else decision
        )

    def nothing_to_drop(*_: Any) -> Mapping[str, tuple[str, ...]]:
        return {}

    with (
        _quiet_invariants(),
        patch.object(commit_module.committing, "decide_commit", forgetful),
        patch.object(commit_module, "_files_of", nothing_to_drop),
    ):
        yield


@contextmanager
def replacement_appends() -> Iterator[None]:
    """A replacement adds its files and leaves those that it replaces."""
    real = SimulatedTables.stage

    def append(self: Any, state: Any, *, drop: Any, **more: Any) -> str:
        return real(self, state, drop=(), **more)

    with patch.object(SimulatedTables, "stage", append):
        yield


@contextmanager
def boundaries_not_clamped() -> Iterator[None]:
    """A boundary is taken as the log answers, not kept between its neighbours in the root being swapped."""

    def as_found(ledger: Any, instant: Any, found: Any, origins: Any) -> Boundary:
        return Boundary(at=instant, positions=found)

    with _quiet_invariants(), patch.object(boundaries, "clamped", as_found):
        yield


@contextmanager
def own_412_taken_for_a_loss() -> Iterator[None]:
    """After an unknown outcome a 412 counts as a lost race, and the writer tidies up its files (SDK retries)."""
    real_commit = commit_module.commit

    def put_once(self: Lake, body: bytes, etag: Any) -> bool:
        outcome = self.store.replace("root.json", body, expected=etag)
        if isinstance(outcome, Unknown):
            again = self.store.replace("root.json", body, expected=etag)
            if not isinstance(again, Applied):
                raise _TakenForALoss
            return True
        return isinstance(outcome, Applied)

    def tidy(lake: Lake, tables: Any, *, plan_key: str, report_key: str) -> Any:
        try:
            return real_commit(lake, tables, plan_key=plan_key, report_key=report_key)
        except _TakenForALoss:
            report = lake.report(report_key)
            lake.store.delete([f.key for f in report.files] if report else [])
            return None

    with (
        _quiet_invariants(),
        patch.object(Lake, "_replace_root", put_once),
        patch.object(actors, "commit", tidy),
    ):
        yield


class _TakenForALoss(RetryLater):
    """Stands for the error that a writer with SDK retries would raise."""

    def __init__(self) -> None:
        super().__init__("412.", hint="none.")


@contextmanager
def origins_forgotten() -> Iterator[None]:
    """The origin of a partition is read anew instead of being set once."""
    real = PlanAttempt._topics

    def anew(self: Any) -> Any:
        topics = real(self)
        return {
            name: replace(
                topic, origins=tuple(p.log_start for p in self.topics_seen[name].partitions)
            )
            for name, topic in topics.items()
        }

    with _quiet_invariants(), patch.object(PlanAttempt, "_topics", anew):
        yield


@contextmanager
def decided_by_generation() -> Iterator[None]:
    """A commit asks whether its generation is granted, not its plan: gc forgets entries, and numbers come again."""
    real = committing.decide_commit

    def by_number(root: Any, entry: Any, plan: Any, **more: Any) -> Any:
        granted = entry.granted if entry is not None else None
        if granted is not None and granted.generation == plan.generation:
            return committing.Publish(before=entry)
        return real(root, entry, plan, **more)

    collecting = patch.object(explorer.Schedule, "collections_drawn", (3, 5))
    with collecting, _quiet_invariants(), patch.object(committing, "decide_commit", by_number):
        yield


def _collected_as(order: Callable[..., Collection]) -> AbstractContextManager[Any]:
    """Another order of gc's steps; `order` gets what collect gets, and does with gc's own steps what it likes."""

    def collect(lake: Lake, tables: Any, *, reader_grace: Any, cancel_after: Any, **_: Any) -> Any:
        now = lake.runtime.now()
        before = None if cancel_after is None else now - cancel_after
        mark = marking.Marking(lake, tables, threads=0)

        def listing() -> Listing:
            return files.enter_context(Listing(lake.store, probes_since=now, watch=lambda *_: None))

        def marks(listed: Listing) -> marking.Marks:
            return lake.read(
                lambda snapshot: mark.marks(
                    snapshot,
                    snapshot.whole_ledger().entries,
                    listed,
                    since=now - reader_grace,
                    doubts_since=now,
                )
            )

        def delete(listed: Listing, marked: marking.Marks) -> Collection:
            collecting._delete(lake, listed, marked.marked, 2, lambda *_: None, total=0)
            return collecting._story(lake, listed, marked)

        with ExitStack() as files:
            return order(listing, lambda: collecting._swap(lake, before), marks, delete)

    return patch.object(actors, "collect", collect)


@contextmanager
def gc_without_its_swap() -> Iterator[None]:
    """gc deletes what is unreachable now, and lets swaps in flight land afterwards."""
    with _collected_as(
        lambda listing, swap, marks, delete: delete(listed := listing(), marks(listed))
    ):
        yield


@contextmanager
def gc_marks_before_its_swap() -> Iterator[None]:
    """gc marks from the root that it read before its swap."""

    def order(listing: Any, swap: Any, marks: Any, delete: Any) -> Collection:
        listed = listing()
        marked = marks(listed)
        swap()
        return delete(listed, marked)

    with _collected_as(order):
        yield


@contextmanager
def gc_lists_after_its_swap() -> Iterator[None]:
    """gc lists after its swap and its mark: what a swap in flight has written since is listed, and not marked."""

    def order(listing: Any, swap: Any, marks: Any, delete: Any) -> Collection:
        swap()
        listed = listing()
        marked = marks(listed)
        return delete(listing(), marked)

    with _collected_as(order):
        yield


@contextmanager
def gc_forgets_granted_plans() -> Iterator[None]:
    """gc keeps what the root reaches, and not what a granted plan owns."""
    real = retention.mark

    def mark(*args: Any, **more: Any) -> Any:
        return replace(real(*args, **more), granted=frozenset(), reported=frozenset())

    with patch.object(retention, "mark", mark):
        yield


@contextmanager
def gc_takes_records() -> Iterator[None]:
    """gc takes records that no committed entry names, as if the chain were not the proof."""
    real = retention.Marked.keeps

    def keeps(self: Any, key: str) -> bool:
        return real(self, key) and (keys.kind(key) != "record" or key in self.named)

    with patch.object(retention.Marked, "keeps", keeps):
        yield


@contextmanager
def gc_without_reader_grace() -> Iterator[None]:
    """gc retains the newest commit alone, whatever the readers' grace is."""

    def newest(self: Any, snapshot: Any, since: Any) -> Any:
        return [self._record(snapshot.root.record)] if snapshot.root.record else []

    with (
        patch.object(marking.Marking, "_retained", newest),
        patch.object(explorer.Schedule, "collections_drawn", (3, 5)),
    ):
        yield


@contextmanager
def closed_topics_asked_for() -> Iterator[None]:
    """A boundary after an adoption asks the new topic where the old one splits."""
    real = adoption.settled

    def asked(ledger: Any, topics: Any, name: str, at: Any) -> Any:
        closed = topics[name].closed
        return None if closed and at > closed.since else real(ledger, topics, name, at)

    with _quiet_invariants(), patch.object(adoption, "settled", asked):
        yield


@contextmanager
def last_copy_replaced() -> Iterator[None]:
    """What was read of a closed topic is replaced by a loss, where losses are accepted."""
    with patch.object(adoption, "last_copy", lambda *_: None):
        yield


@contextmanager
def unread_tail_forgotten() -> Iterator[None]:
    """A plan says nothing of what was lost with an adoption."""
    with patch("tallystick.operations.plan.attempt.closed_topics", lambda *_, **__: ()):
        yield


@contextmanager
def lower_clear_number_ends_well() -> Iterator[None]:
    """A request with a lower clear number than the ledger's is green although something is left to do."""
    with patch.object(planning, "_nothing_left", lambda *_: planning.PlanDecision()):
        yield


MUTANTS: dict[str, Mutant] = {
    "no If-Match": no_if_match,
    "decided once, not on each root": decided_once,
    "AlreadyCommitted never answered": never_already_committed,
    "a replacement only appends": replacement_appends,
    "boundaries not clamped": boundaries_not_clamped,
    "own 412 taken for a loss": own_412_taken_for_a_loss,
    "origins read anew": origins_forgotten,
    "decided by generation, not by plan": decided_by_generation,
    "gc without its swap": gc_without_its_swap,
    "gc marks before its swap": gc_marks_before_its_swap,
    "gc lists after its swap": gc_lists_after_its_swap,
    "gc forgets granted plans": gc_forgets_granted_plans,
    "gc takes records": gc_takes_records,
    "gc without reader grace": gc_without_reader_grace,
    "closed topics asked for": closed_topics_asked_for,
    "the last copy replaced": last_copy_replaced,
    "the unread tail forgotten": unread_tail_forgotten,
    "a lower clear number ends well": lower_clear_number_ends_well,
}
