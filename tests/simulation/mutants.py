"""Dropped guards: each switches off one rule of the protocol, and the explorer must detect it.

A mutant is a context manager that patches tallystick's own code while it is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from simulation import actors, explorer
from simulation.environment import SimulatedTables
from tallystick.errors import RetryLater
from tallystick.format import keys
from tallystick.format.page import Boundary
from tallystick.lake import Lake
from tallystick.operations.commit import attempt as commit_module
from tallystick.operations.gc import Collection, collecting, marking
from tallystick.operations.gc.listing import Listing
from tallystick.operations.plan.attempt import PlanAttempt
from tallystick.protocol import adoption, boundaries, committing, planning, retention
from tallystick.store import Applied, Unknown

Mutant = Callable[[], AbstractContextManager[Any]]


def _without_own_checks() -> AbstractContextManager[Any]:
    # tallystick's own check before each swap would stop most mutants. The oracle must detect them without it.
    return patch("tallystick.lake.lake.check_swap", lambda *_: None)


@contextmanager
def no_if_match() -> Iterator[None]:
    """PUT the root without a condition."""
    with _without_own_checks(), patch.object(explorer.Schedule, "honours_conditions", False):
        yield


@contextmanager
def decided_once() -> Iterator[None]:
    """Decide a commit on the first root, and use that decision on every rebase."""
    real = committing.decide_commit
    first: dict[str, Any] = {}

    def first_decision(root: Any, entry: Any, plan: Any, **more: Any) -> Any:
        decision = first.setdefault(plan.key, real(root, entry, plan, **more))
        if isinstance(decision, committing.Publish) and entry is not None:
            return replace(decision, before=replace(entry, granted=decision.before.granted))
        return decision

    with (
        _without_own_checks(),
        patch.object(commit_module.committing, "decide_commit", first_decision),
    ):
        yield


@contextmanager
def never_already_committed() -> Iterator[None]:
    """Never return AlreadyCommitted: a repeat publishes again."""
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
        _without_own_checks(),
        patch.object(commit_module.committing, "decide_commit", forgetful),
        patch.object(commit_module, "_files_of", nothing_to_drop),
    ):
        yield


@contextmanager
def replacement_appends() -> Iterator[None]:
    """Add the files of a replacement without removing those that it replaces."""
    real = SimulatedTables.stage

    def append(self: Any, state: Any, *, drop: Any, **more: Any) -> str:
        return real(self, state, drop=(), **more)

    with patch.object(SimulatedTables, "stage", append):
        yield


@contextmanager
def boundaries_not_clamped() -> Iterator[None]:
    """Use a boundary as the log returns it, not clamped between its neighbours in the root being swapped."""

    def as_found(ledger: Any, instant: Any, found: Any, origins: Any) -> Boundary:
        return Boundary(at=instant, positions=found)

    with _without_own_checks(), patch.object(boundaries, "clamped", as_found):
        yield


@contextmanager
def own_412_counts_as_lost() -> Iterator[None]:
    """Treat a 412 after an unknown outcome as a lost race: the writer deletes its files (SDK retries)."""
    real_commit = commit_module.commit

    def put_once(self: Lake, body: bytes, etag: Any) -> bool:
        outcome = self.store.replace("root.json", body, expected=etag)
        if isinstance(outcome, Unknown):
            again = self.store.replace("root.json", body, expected=etag)
            if not isinstance(again, Applied):
                raise _CountsAsLost
            return True
        return isinstance(outcome, Applied)

    def delete_files(lake: Lake, tables: Any, *, plan_key: str, report_key: str) -> Any:
        try:
            return real_commit(lake, tables, plan_key=plan_key, report_key=report_key)
        except _CountsAsLost:
            report = lake.report(report_key)
            lake.store.delete([f.key for f in report.files] if report else [])
            return None

    with (
        _without_own_checks(),
        patch.object(Lake, "_replace_root", put_once),
        patch.object(actors, "commit", delete_files),
    ):
        yield


class _CountsAsLost(RetryLater):
    """The error that a writer with SDK retries would raise."""

    def __init__(self) -> None:
        super().__init__("412.", hint="none.")


@contextmanager
def origins_read_again() -> Iterator[None]:
    """Read the origin of a partition again instead of setting it once."""
    real = PlanAttempt._topics

    def read_again(self: Any) -> Any:
        topics = real(self)
        return {
            name: replace(
                topic, origins=tuple(p.log_start for p in self.topics_seen[name].partitions)
            )
            for name, topic in topics.items()
        }

    with _without_own_checks(), patch.object(PlanAttempt, "_topics", read_again):
        yield


@contextmanager
def decided_by_generation() -> Iterator[None]:
    """Check the generation of a grant, not its plan: gc drops entries, so generations are used again."""
    real = committing.decide_commit

    def by_number(root: Any, entry: Any, plan: Any, **more: Any) -> Any:
        granted = entry.granted if entry is not None else None
        if granted is not None and granted.generation == plan.generation:
            return committing.Publish(before=entry)
        return real(root, entry, plan, **more)

    collecting = patch.object(explorer.Schedule, "collections_drawn", (3, 5))
    with collecting, _without_own_checks(), patch.object(committing, "decide_commit", by_number):
        yield


def _collected_as(order: Callable[..., Collection]) -> AbstractContextManager[Any]:
    """Replace the order of gc's steps: `order` calls gc's own steps (listing, swap, marks, delete)."""

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
            return collecting._collection(lake, listed, marked)

        with ExitStack() as files:
            return order(listing, lambda: collecting._swap(lake, before), marks, delete)

    return patch.object(actors, "collect", collect)


@contextmanager
def gc_without_its_swap() -> Iterator[None]:
    """Delete in gc what is unreachable now, although swaps in flight may be applied afterwards."""
    with _collected_as(
        lambda listing, swap, marks, delete: delete(listed := listing(), marks(listed))
    ):
        yield


@contextmanager
def gc_marks_before_its_swap() -> Iterator[None]:
    """Mark from the root that gc read before its swap."""

    def order(listing: Any, swap: Any, marks: Any, delete: Any) -> Collection:
        listed = listing()
        marked = marks(listed)
        swap()
        return delete(listed, marked)

    with _collected_as(order):
        yield


@contextmanager
def gc_lists_after_its_swap() -> Iterator[None]:
    """List after the swap and the mark: objects that a swap in flight wrote since are listed, but not marked."""

    def order(listing: Any, swap: Any, marks: Any, delete: Any) -> Collection:
        swap()
        listed = listing()
        marked = marks(listed)
        return delete(listing(), marked)

    with _collected_as(order):
        yield


@contextmanager
def gc_ignores_granted_plans() -> Iterator[None]:
    """Keep in gc what the root reaches, but not the objects of a granted plan."""
    real = retention.mark

    def mark(*args: Any, **more: Any) -> Any:
        return replace(real(*args, **more), granted=frozenset(), reported=frozenset())

    with patch.object(retention, "mark", mark):
        yield


@contextmanager
def gc_deletes_records() -> Iterator[None]:
    """Delete records that no committed entry names, although the chain is the proof."""
    real = retention.Marked.keeps

    def keeps(self: Any, key: str) -> bool:
        return real(self, key) and (keys.kind(key) != "record" or key in self.named)

    with patch.object(retention.Marked, "keeps", keeps):
        yield


@contextmanager
def gc_without_reader_grace() -> Iterator[None]:
    """Retain only the newest commit in gc, without the grace for readers."""

    def newest(self: Any, snapshot: Any, since: Any) -> Any:
        return [self._record(snapshot.root.record)] if snapshot.root.record else []

    with (
        patch.object(marking.Marking, "_retained", newest),
        patch.object(explorer.Schedule, "collections_drawn", (3, 5)),
    ):
        yield


@contextmanager
def closed_topics_looked_up() -> Iterator[None]:
    """Look up a boundary after an adoption in the new topic instead of using the closed topic's end."""
    real = adoption.positions_without_log

    def looked_up(ledger: Any, topics: Any, name: str, at: Any) -> Any:
        closed = topics[name].closed
        return None if closed and at > closed.since else real(ledger, topics, name, at)

    with _without_own_checks(), patch.object(adoption, "positions_without_log", looked_up):
        yield


@contextmanager
def last_copy_replaced() -> Iterator[None]:
    """Replace rows of a closed topic by a loss if losses are accepted."""
    with patch.object(adoption, "last_copy", lambda *_: None):
        yield


@contextmanager
def unread_tail_ignored() -> Iterator[None]:
    """Leave out of a plan what was lost with an adoption."""
    with patch("tallystick.operations.plan.attempt.closed_topics", lambda *_, **__: ()):
        yield


@contextmanager
def lower_clear_number_succeeds() -> Iterator[None]:
    """Let a request with a lower clear number than the ledger's succeed although work is left."""
    with patch.object(planning, "_nothing_left", lambda *_: planning.PlanDecision()):
        yield


MUTANTS: dict[str, Mutant] = {
    "no If-Match": no_if_match,
    "decided once, not on each root": decided_once,
    "AlreadyCommitted is never returned": never_already_committed,
    "a replacement only appends": replacement_appends,
    "boundaries are not clamped": boundaries_not_clamped,
    "own 412 counts as a lost race": own_412_counts_as_lost,
    "origins are read again": origins_read_again,
    "decided by generation, not by plan": decided_by_generation,
    "gc without its swap": gc_without_its_swap,
    "gc marks before its swap": gc_marks_before_its_swap,
    "gc lists after its swap": gc_lists_after_its_swap,
    "gc ignores granted plans": gc_ignores_granted_plans,
    "gc deletes records": gc_deletes_records,
    "gc without reader grace": gc_without_reader_grace,
    "closed topics are looked up": closed_topics_looked_up,
    "the last copy is replaced": last_copy_replaced,
    "the unread tail is ignored": unread_tail_ignored,
    "a lower clear number succeeds": lower_clear_number_succeeds,
}
