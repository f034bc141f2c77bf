"""The explorer with an output: publishers that are killed, resume as zombies and compete, during runs, clears and gc.

The output behaves like a topic under a transactional producer (support/fake_output.py). Each of its steps returns control
to the explorer. At the end, after the faults and one last publisher, the receiver has exactly the committed rows.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import greenlet

from simulation.actors import Run
from simulation.environment import PIPELINE, SimulatedStore, Simulation, ViolationError
from simulation.explorer import Schedule
from support.fake_output import Declared, FakeOutput, Wire
from tallystick.errors import Corrupt, OutputUnavailable, RetryLater, RootVanished
from tallystick.format.report import FileReport
from tallystick.lake import Lake
from tallystick.operations.publish import publish
from tallystick.store import Store

FEED = "feed"
PUBLISHING = replace(PIPELINE, outputs=(Declared(name=FEED, table="a"),))


class SimulatedBatch:
    """The rows of one file: the offsets in it."""

    def __init__(self, rows: list[list[Any]]) -> None:
        self._rows = rows

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return the rows as pyarrow does."""
        return [{"row": tuple(row)} for row in self._rows]


class SimulatedRows:
    """The counterpart of tallystick.tables.rows for simulated files."""

    def __init__(self, store: Store, files: Sequence[FileReport]) -> None:
        self._store, self._files = store, files

    def __len__(self) -> int:
        return sum(file.rows for file in self._files)

    def batches(self, start: int = 0) -> Iterator[Any]:
        """Yield one batch per file. Raises Corrupt if a file is gone."""
        assert start == 0
        for file in self._files:
            stored = self._store.get(file.key)
            if stored is None:
                raise Corrupt(f"{file.key} is gone.", hint="restore it.")
            yield SimulatedBatch(json.loads(stored.body))


@dataclass
class Publisher:
    """A publisher that publishes all pending rows, in its own process."""

    sim: Simulation
    wire: Wire
    actor: greenlet.greenlet = field(init=False)

    def __post_init__(self) -> None:
        self.actor = greenlet.greenlet(self._publish)

    def _publish(self) -> str:
        lake = Lake(
            SimulatedStore(self.sim),
            self.sim.runtime(),
            proven=True,
            page_bytes_max=self.sim.page_bytes_max,
        )
        output = FakeOutput(self.wire, step=self._step)
        try:
            failed = publish(lake, {FEED: lambda: output}, rows_of=SimulatedRows)
        except (RetryLater, RootVanished) as error:
            return str(error)  # in doubt, or there is no lake yet: the next publisher continues
        for failure in failed:
            if not isinstance(failure.error, RetryLater | RootVanished):
                raise ViolationError(f"P0: {failure.interval} cannot be published: {failure.error}")
        return "; ".join(str(failure.error) for failure in failed)

    def _step(self, what: str) -> None:
        self.sim.step()
        if what in ("send", "sent") and self.sim.fault(0.2):
            self.sim.trace.append(f"   the receiver is gone: {what}")
            raise OutputUnavailable("the receiver is gone.", hint="try again.")


class PublishingSchedule(Schedule):
    """A schedule whose rows are published to an output."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.wire = Wire()
        self.publishers = self.rng.choice([2, 4, 8])
        self.sim.budget += 2  # for faults of the receiver
        # These schedules are about replacements of rows that were published, or are in progress.
        self.recreations, self.deploys = 0, True
        self.clears = self.rng.choice([1, 2, 4])
        self.living: list[greenlet.greenlet] = []

    def _share_attempts(self, rng: random.Random) -> None:
        """Share none: who staged a report makes no difference to an output, and these runs must meet each other."""

    def _spawn(self, number: int) -> Run:
        run = super()._spawn(number)
        run.pipeline = PUBLISHING
        run.replace = self.rng.random() < 0.5
        return run

    def _event(self) -> bool:
        dice = self.rng.random()
        if dice < 0.04 and self.publishers and self.sim.landed:
            self.publishers -= 1
            self._publisher()
        elif dice < 0.05 and self.living:
            victim = self.living.pop(self.rng.randrange(len(self.living)))
            if victim in self.zombies and self.rng.random() < 0.7:
                self.sim.trace.append("KILL publisher")
                self.zombies.remove(victim)
        else:
            return super()._event()
        return True

    def _publisher(self) -> greenlet.greenlet:
        self.sim.trace.append("PUBLISH")
        actor = Publisher(sim=self.sim, wire=self.wire).actor
        self.zombies.append(actor)
        self.living.append(actor)
        return actor

    def _check_the_end(self) -> None:
        super()._check_the_end()
        last = Publisher(sim=self.sim, wire=self.wire).actor
        errors = ""
        while not last.dead:
            errors = last.switch()
            self.oracle.check_new()
        self._check_the_receiver(errors)

    def _check_the_receiver(self, errors: str) -> None:
        """Check P1: each row once. P2: the receiver has the committed rows. P3: no uncommitted row was sent."""
        if twice := self.wire.duplicates():
            raise ViolationError(f"P1: {twice} were sent more than once")
        rows: list[tuple[Any, ...]] = []
        committed: set[str] = set()
        for entry in self.oracle.entries_before:
            slot = entry.get("outputs", {}).get(FEED)
            if entry["committed"] is None:
                continue
            record = json.loads(self.sim.objects[entry["committed"]["record"]].body)
            for done in record["intervals"]:
                if done["plan"] == entry["committed"]["plan"]:
                    for key in done["added"].get("a", ()):
                        rows += [(tuple(r),) for r in json.loads(self.sim.objects[key].body)]
            if (
                slot is None
                or slot["in_progress"] is not None
                or slot["published"] != slot["wanted"]
            ):
                raise ViolationError(f"P2: {entry['interval']} is still pending ({slot}): {errors}")
        for key, stored in self.sim.objects.items():
            if key.startswith("commits/"):
                committed |= {c["plan"][-37:-5] for c in json.loads(stored.body)["intervals"]}
        if uncommitted := {m.plan for m in self.wire.messages} - committed:
            raise ViolationError(f"P3: {uncommitted} were sent and never committed")
        if sorted(rows) != (received := self.wire.rows()):
            raise ViolationError(f"P2: the receiver has {received}, committed is {sorted(rows)}")


def explore_publishing(first_seed: int, schedules: int) -> tuple[int, list[tuple[int, str]]]:
    """Run seeds until one breaks the promise. Return the number of messages that were sent, and the violation."""
    sent = 0
    for seed in range(first_seed, first_seed + schedules):
        schedule = PublishingSchedule(seed)
        broken = schedule.run()
        sent += len(schedule.wire.messages)
        if broken:
            return sent, [(seed, broken)]
    return sent, []
