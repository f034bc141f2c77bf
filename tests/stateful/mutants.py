"""Dropped guards: each switches one rule of the protocol off, and the explorer must notice.

A mutant is a context manager that patches tallystick's own code for as long as it is open. Deciding by generation number
instead of plan key is not among them: generations only fall where gc forgets an entry, and gc is not explored yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import stateful.explorer as explorer_module
from stateful.simulation import SimulatedTables
from tallystick import commit as commit_module
from tallystick.lake import Lake
from tallystick.plan.granting import Granting
from tallystick.protocol import decide
from tallystick.protocol.ledger import Boundary
from tallystick.store import Applied, Unknown

Mutant = Callable[[], AbstractContextManager[Any]]


def _quiet_invariants() -> AbstractContextManager[Any]:
    # Our own check before each swap would stop most mutants; the oracle must catch them without it.
    return patch("tallystick.lake.check_swap", lambda *_: None)


@contextmanager
def no_if_match() -> Iterator[None]:
    """The root is PUT without a condition."""
    with _quiet_invariants(), patch.object(explorer_module.Schedule, "honours_conditions", False):
        yield


@contextmanager
def decided_once() -> Iterator[None]:
    """A commit decides on the first root it reads and trusts that on every rebase."""
    real = decide.decide_commit
    first: dict[str, Any] = {}

    def stale(root: Any, entry: Any, plan: Any, **more: Any) -> Any:
        decision = first.setdefault(plan.key, real(root, entry, plan, **more))
        if isinstance(decision, decide.Publish) and entry is not None:
            return replace(decision, before=replace(entry, granted=decision.before.granted))
        return decision

    with _quiet_invariants(), patch.object(commit_module.decide, "decide_commit", stale):
        yield


@contextmanager
def never_already_committed() -> Iterator[None]:
    """AlreadyCommitted is never answered: a repeat publishes again."""
    real = decide.decide_commit

    def forgetful(root: Any, entry: Any, plan: Any, **more: Any) -> Any:
        decision = real(root, entry, plan, **more)
        return (
            decide.Publish(before=entry)
            if isinstance(decision, decide.AlreadyCommitted)
            else decision
        )

    def nothing_to_drop(*_: Any) -> Mapping[str, tuple[str, ...]]:
        return {}

    with (
        _quiet_invariants(),
        patch.object(commit_module.decide, "decide_commit", forgetful),
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

    with _quiet_invariants(), patch.object(decide, "clamped", as_found):
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
        patch.object(explorer_module, "commit", tidy),
    ):
        yield


class _TakenForALoss(explorer_module.RetryLater):
    """Stands for the error that a writer with SDK retries would raise."""

    def __init__(self) -> None:
        super().__init__("412.", next_step="none.")


@contextmanager
def origins_forgotten() -> Iterator[None]:
    """The origin of a partition is read anew instead of being set once."""
    real = Granting._topics

    def anew(self: Any) -> Any:
        topics = real(self)
        return {
            name: replace(
                topic, origins=tuple(p.log_start for p in self.topics_seen[name].partitions)
            )
            for name, topic in topics.items()
        }

    with _quiet_invariants(), patch.object(Granting, "_topics", anew):
        yield


MUTANTS: dict[str, Mutant] = {
    "no If-Match": no_if_match,
    "decided once, not on each root": decided_once,
    "AlreadyCommitted never answered": never_already_committed,
    "a replacement only appends": replacement_appends,
    "boundaries not clamped": boundaries_not_clamped,
    "own 412 taken for a loss": own_412_taken_for_a_loss,
    "origins read anew": origins_forgotten,
}
