"""A course of rounds: all nemeses in turn, until the requested number of rounds or the time is reached."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from chaos.backlog import BACKLOG
from chaos.compactions import COMPACTIONS
from chaos.compactor import Compactions
from chaos.errors import MissedError, ViolationError
from chaos.processes import PROCESSES
from chaos.rounds import Nemesis, Round
from chaos.servers import SERVERS
from chaos.small_disk import MountError
from chaos.table import Line
from chaos.workspace import Workspace

NEMESES = {n.name: n for n in (*PROCESSES, *SERVERS, *BACKLOG, *COMPACTIONS)}
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The first violation: its nemesis, its seed and the counter-example."""

    nemesis: str
    seed: int
    counter_example: str

    @property
    def replay(self) -> str:
        """The command that plays this round again."""
        return f"make chaos NEMESIS={self.nemesis} SEED={self.seed} ROUNDS=1"


@dataclass(slots=True, kw_only=True)
class Course:
    """Rounds on one workspace. Round k of a nemesis has the seed `seed` + k; `rounds` None: all that fit into `budget_s`.

    `compactions`: what became of those of all audited rounds. `prelude` breaks the product on purpose (broken_swap.py).
    """

    workspace: Workspace
    nemeses: Sequence[Nemesis]
    seed: int
    report: Report
    rounds: int | None = 1
    budget_s: float = 0.0
    prelude: str = ""
    lines: dict[str, Line] = field(default_factory=dict)
    compactions: Compactions = field(default_factory=Compactions)

    def run(self) -> Broken | None:
        """Play the rounds up to the first violation, and return it; `lines` has the results of the rounds before it."""
        self._make_ready()
        rounds = self._rounds()
        upcoming = next(rounds, None)
        while upcoming is not None:
            current, upcoming = upcoming, next(rounds, None)
            current.began_at = time.monotonic()
            self.report(f"{current.nemesis.name} {current.seed}: {current.nemesis.what}")
            if upcoming is not None:
                # Airflow parses its file while this round runs.
                self.workspace.declare(upcoming.lake)
            try:
                self._play(current)
            except ViolationError as violation:
                return Broken(
                    nemesis=current.nemesis.name,
                    seed=current.seed,
                    counter_example=str(violation),
                )
        return None

    def _make_ready(self) -> None:
        for nemesis in self.nemeses:
            line = Line(
                nemesis=nemesis.name,
                what=nemesis.what,
                first_seed=self.seed,
                last_seed=self.seed,
            )
            self.lines[nemesis.name] = line
            try:
                nemesis.ready(self.workspace)
            except MountError as reason:
                line.not_run = str(reason)
                self.report(f"{nemesis.name} is left out: {reason}")

    def _rounds(self) -> Iterator[Round]:
        began, slowest_s, number = time.monotonic(), 0.0, 0
        while self.rounds is None or number < self.rounds:
            for nemesis in self.nemeses:
                if self.lines[nemesis.name].not_run:
                    continue
                at = time.monotonic()
                # The generator is one round ahead of the one that is played: leave time for two.
                if number and self.rounds is None and at - began + 2 * slowest_s > self.budget_s:
                    return
                yield self._round(nemesis, self.seed + number)
                slowest_s = max(slowest_s, time.monotonic() - at)
            number += 1
            if all(line.not_run for line in self.lines.values()):
                return

    def _round(self, nemesis: Nemesis, seed: int, *, hold: bool | None = None) -> Round:
        return Round(
            workspace=self.workspace,
            nemesis=nemesis,
            seed=seed,
            hold=hold,
            prelude=self.prelude,
            report=self.report,
        )

    def _play(self, first: Round) -> None:
        """Play a round. If its moment was missed, play the same seed once more, and hold the request at its point."""
        line = self.lines[first.nemesis.name]
        for hold in (False, True):
            current = self._round(first.nemesis, first.seed, hold=True) if hold else first
            try:
                finding = current.run()
            except MissedError as missed:
                line.missed += 1
                self.report(f"{first.nemesis.name} {first.seed}: missed, {missed}")
                continue
            except ViolationError as violation:
                folder = self.workspace.save_evidence(current.lake)
                raise ViolationError(f"{violation}\n\nevidence: {folder}") from None
            finally:
                self.workspace.remove(current.lake)
            elapsed_s = time.monotonic() - current.began_at
            self.compactions.add(current.compactor.counts)
            line.add(finding, first.seed, elapsed_s, compactions=current.compactor.counts.published)
            self.report(
                f"{first.nemesis.name} {first.seed}: {finding.records:,} records once, {elapsed_s:.0f} s"
            )
            return
