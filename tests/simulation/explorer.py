"""Random explorer of the real plan, stage, commit and swap code under crashes, zombies, lost, delayed and doubled PUTs.

A schedule is a function of its seed: two or three runs with overlapping intervals, clears, deploys, kills and zombies,
a growing log, collections by gc, readers of old roots. The oracle checks the promise after each swap that is applied and
after each deletion. When faults stop, every run must be able to finish, no grant may remain, and a last collection
leaves nothing that is not needed.
"""

from __future__ import annotations

import functools
import gc
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import greenlet

from simulation.actors import TASKS, Adopter, Collector, Compactor, Run
from simulation.environment import SimulatedLog, Simulation, ViolationError, at, span
from simulation.oracle import Oracle
from tallystick.format import keys
from tallystick.format.claim import Claim
from tallystick.format.compaction import Compaction
from tallystick.format.page import Page
from tallystick.format.plan import Plan
from tallystick.format.record import Record
from tallystick.format.report import Report
from tallystick.format.root import Root
from tallystick.operations.gc import Collection
from tallystick.protocol.invariants import InvariantError

STEPS_MAX = 900
LAST_HOUR = 3


@dataclass
class Schedule:
    """The simulation, the runs and the adversary of one seed."""

    seed: int
    honours_conditions = True  # of every store; a mutant sets it to False
    collections_drawn = (0, 0, 1, 2)  # a mutant with an effect only after a collection draws more
    compactions_drawn = (0, 0, 1, 3)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.sim = Simulation(
            rng=self.rng,
            budget=self.rng.choice([0, 1, 2, 4]),
            honours_conditions=self.honours_conditions,
        )
        self.sim.page_bytes_max = self.rng.choice([1, 1500, 256 * 1024])
        self.log = SimulatedLog(self.sim)
        self.oracle = Oracle(self.sim)
        self.zombies: list[greenlet.greenlet] = []
        self.runs = [self._spawn(i) for i in range(self.rng.choice([2, 2, 3]))]
        self.grows = self.rng.random() < 0.4
        self.deploys = self.rng.random() < 0.5
        self.clears, self.kills = self.rng.choice([0, 1, 2, 3]), self.rng.choice([0, 1, 2, 3])
        self.collections = self.rng.choice(self.collections_drawn)
        self.reader_grace = self.rng.choice([timedelta(0), timedelta(hours=24)])
        self.readers = self.rng.choice([0, 1, 2]) if self.reader_grace else 0
        self.stickiness = self.rng.choice([0.2, 0.6, 0.9, 0.97])
        # Most schedules have none: after a topic is created again, the current runs cannot continue.
        self.recreations = self.rng.choice([0, 0, 0, 0, 0, 1, 2])
        self.ends: dict[str, dict[int, int]] = {}
        # Its own random generator: the schedules of seeds without it do not change.
        self.new_databases = 1 if random.Random(f"database {self.seed}").random() < 0.25 else 0
        self._share_attempts(random.Random(f"together {self.seed}"))
        compacting = random.Random(f"compaction {self.seed}")
        self.compactions = compacting.choice(self.compactions_drawn)
        self.compactors: list[Compactor] = []
        if self.compactions and compacting.random() < 0.7:
            self._prepare_replacements(compacting)
        self.triggered = 0
        self.steps = 0

    def _share_attempts(self, rng: random.Random) -> None:
        """Let the runs of some schedules share attempts; of most of these, each run has a past hour with records."""
        if rng.random() >= 0.3:
            return
        by_name = {run.name: run for run in self.runs}
        apart = rng.random() < 0.7
        for run in self.runs:
            run.together = by_name
        if apart:
            self._share_hours()

    def _prepare_replacements(self, rng: random.Random) -> None:
        """Let three runs have an hour each, and be cleared after a deploy: rows are replaced that were moved."""
        while len(self.runs) < 3:
            self.runs.append(self._spawn(len(self.runs)))
        self._share_hours()
        self.deploys, self.clears = True, rng.choice([2, 4])

    def _share_hours(self) -> None:
        for number, run in enumerate(self.runs):
            run.hours = (number, number + 1)
        self.sim.hour = LAST_HOUR
        self.log.records[0] = [(hour, True) for hour in range(LAST_HOUR)]
        self.log.stable[0] = LAST_HOUR

    def _spawn(self, number: int) -> Run:
        rng = self.rng
        hours: tuple[int, int] | None = rng.choice([(0, 1), (1, 2), (0, 2), (1, 3), (2, 3), (0, 3)])
        replace, take_over = rng.random() < 0.2, rng.random() < 0.15
        if rng.random() < 0.15:
            hours = None
        return Run(
            sim=self.sim,
            log=self.log,
            name=f"r{number}",
            hours=hours,
            replace=replace,
            take_over=take_over,
            run_after=rng.choice([2, 3]),
        )

    def run(self) -> str | None:
        """Run the schedule. Return the violation, None if the promise held."""
        try:
            self._with_faults()
            self._without_faults()
        except (ViolationError, InvariantError) as broken:
            return str(broken)
        except (ValueError, KeyError, AssertionError) as broken:
            # A value failed its own checks: nothing wrong was published, but a user's task would have crashed.
            return f"crash: {type(broken).__name__}: {broken}"
        return None

    # ------------------------------------------------------------ with faults

    def _with_faults(self) -> None:
        current: Run | greenlet.greenlet | None = None
        for self.steps in range(STEPS_MAX):
            self.oracle.check_new()
            self.oracle.check_deletions()
            if self._event():
                continue
            actors = [r for r in self.runs if not r.done] + self.zombies
            if not actors and not self.clears and not self.sim.in_flight:
                return
            if not actors:
                continue
            if current not in actors or self.rng.random() > self.stickiness:
                current = self.rng.choice(actors)
            self._advance(current)

    def _advance(self, actor: Any) -> None:
        if isinstance(actor, Run):
            actor.step()
            return
        actor.switch()
        if actor.dead:
            self.zombies.remove(actor)

    def _event(self) -> bool:
        dice = self.rng.random()
        if dice < 0.06:
            self._log_moves()
        elif dice < 0.09 and self.sim.in_flight:
            self._land_one()
        elif dice < 0.10 and self.kills:
            self._kill()
        elif dice < 0.11 and self.clears:
            self._clear()
        elif dice < 0.118 and self.collections:
            self.collections -= 1
            self._collect()
        elif dice < 0.122 and self.readers and self.sim.landed:
            self.readers -= 1
            self.oracle.reader_opens()
        elif dice < 0.129 and dice >= 0.125 and self.recreations and self.sim.hour > 0:
            self.recreations -= 1
            ends = {p: len(records) for p, records in self.log.records.items()}
            self.ends[self.log.topic_id] = ends
            self.log.recreate()
            self.sim.trace.append("RECREATED")
        elif 0.129 <= dice < 0.145 and self.log.incarnation > 1:
            self._adopt()
        elif 0.145 <= dice < 0.155 and self.new_databases:
            self._new_database()
        elif 0.155 <= dice < 0.175 and self.compactions and self.sim.landed:
            self.compactions -= 1
            self._compact(self.rng.choice([40, 10_000]))
        elif dice < 0.125 and self.deploys:
            self.deploys = False
            self.sim.code = 2
            self.sim.trace.append("DEPLOY")
        else:
            return False
        return True

    def _collect(self) -> None:
        collector = Collector(
            sim=self.sim,
            reader_grace=self.reader_grace,
            cancel_after=self.rng.choice([None, timedelta(0), timedelta(hours=-1)]),
            batch=self.rng.choice([1, 2, 100]),
            doubt_grace=self.rng.choice([timedelta(0), timedelta(days=30)]),
        )
        self.sim.trace.append(f"GC cancel_after={collector.cancel_after}")
        self.zombies.append(collector.actor)

    def _compact(self, target_bytes: int) -> greenlet.greenlet:
        compactor = Compactor(sim=self.sim, target_bytes=target_bytes)
        self.sim.trace.append(f"COMPACT to {target_bytes} bytes")
        self.compactors.append(compactor)
        self.zombies.append(compactor.actor)
        return compactor.actor

    def _adopt(self) -> greenlet.greenlet:
        ends = self.ends if self.rng.random() < 0.7 else {}
        adopter = Adopter(sim=self.sim, log=self.log, ends=ends)
        self.zombies.append(adopter.actor)
        return adopter.actor

    def _log_moves(self) -> None:
        rng, log = self.rng, self.log
        dice = rng.random()
        if dice < 0.4 and self.sim.hour < LAST_HOUR:
            self.sim.hour += 1
        elif dice < 0.85:
            p = rng.choice(sorted(log.records))
            if len(log.records[p]) < 8:
                log.records[p].append(
                    (max(0, self.sim.hour - rng.choice([0, 0, 1])), rng.random() < 0.9)
                )
                if rng.random() < 0.8:
                    log.stable[p] = len(log.records[p])
        elif self.grows and 1 not in log.records and self.sim.hour > 0:
            log.records[1], log.stable[1], log.start[1] = [], 0, 0
        elif rng.random() < 0.1:
            p = rng.choice(sorted(log.records))
            log.start[p] = min(log.start[p] + 1, log.stable[p])

    def _land_one(self) -> None:
        etag, key, body = self.sim.in_flight.pop(self.rng.randrange(len(self.sim.in_flight)))
        landed = self.sim.land(etag, key, body)
        self.sim.trace.append(f"   late PUT {'LANDS' if landed else 'fails'}")

    def _kill(self) -> None:
        victim = self.rng.choice(self.runs)
        if victim.actor is None:
            return
        self.kills -= 1
        zombie = self.rng.random() < 0.5
        self.sim.trace.append(f"{'ZOMBIE' if zombie else 'KILL'} {victim.name}")
        if zombie:
            self.zombies.append(victim.actor)
        victim.actor = None

    def _clear(self) -> None:
        victim = self.rng.choice(self.runs)
        self.clears -= 1
        if victim.actor is not None and self.rng.random() < 0.7:
            self.zombies.append(victim.actor)
        task = self.rng.choice([0, 0, 1, 2])
        self.sim.trace.append(f"CLEAR {victim.name} from {TASKS[task]}")
        victim.clear(task)

    def _new_database(self) -> None:
        """Replace Airflow's metadata database: each run with dates is recreated, and its clears count from 0."""
        self.new_databases -= 1
        self.sim.trace.append("NEW DATABASE")
        for run in self.runs:
            if run.hours is None:
                continue  # its run id contains the moment of its trigger, and is never used again
            if run.actor is not None and self.rng.random() < 0.7:
                self.zombies.append(run.actor)
            run.recreate()

    # ------------------------------------------------------------ after the faults

    def _without_faults(self) -> None:
        self.sim.faults = False
        self.sim.trace.append("--- no more faults")
        for zombie in self.zombies:
            for _ in range(2000):
                if zombie.dead:
                    break
                zombie.switch()
                self.oracle.check_new()
                self.oracle.check_deletions()
        while self.sim.in_flight:
            self._land_one()
            self.oracle.check_new()
        self.sim.hour = LAST_HOUR
        for p, log in self.log.records.items():
            self.log.stable[p] = len(log)
        self._adopt_at_the_end()
        for once_more in (False, True):
            for run in self.runs:
                self._finish(run, once_more)
        self._compact_at_the_end()
        self._check_the_end()
        # Two collections take a third of a schedule's time: only some schedules without collections end with them.
        if self.sim.deletions or self.seed % 16 == 0:
            self._collect_the_rest()

    def _compact_at_the_end(self) -> None:
        """Compact a lake that was compacted before, and check that each result is true."""
        if self.compactors:
            actor = self._compact(10_000)
            while not actor.dead:
                actor.switch()
                self.oracle.check_new()
                self.oracle.check_deletions()
        for compactor in self.compactors:
            wrong = compactor.result.left.keys() & self.oracle.published if compactor.result else ()
            if wrong:
                raise ViolationError(f"C9: {sorted(wrong)[0]} is published and was reported as not")

    def _adopt_at_the_end(self) -> None:
        """Adopt the topic if it was created again: only then can runs finish."""
        if self.log.incarnation > 1:
            actor = self._adopt()
            while not actor.dead:
                actor.switch()
                self.oracle.check_new()

    def _collect_the_rest(self) -> None:
        """Collect twice: the first collection deletes all that is left over, the second finds nothing."""
        collection: Collection | None = None
        for _ in range(2):
            last = Collector(
                sim=self.sim, reader_grace=timedelta(0), cancel_after=None, batch=100
            ).actor
            self.oracle.readers.clear()
            while not last.dead:
                collection = last.switch()
                self.oracle.check_new()
                self.oracle.check_deletions()
        if collection is not None and collection.total.objects:
            raise ViolationError(f"gc leaves {collection.examples} behind")

    def _finish(self, run: Run, once_more: bool) -> None:
        for attempt in range(6):
            if attempt or once_more or not run.done or run.error:
                run.clear(0)
            for _ in range(3000):
                if run.done:
                    break
                run.step()
                self.oracle.check_new()
            if run.done and (run.error is None or run.refused):
                return
            if run.clears_restarted:
                self._trigger_instead(run)
                return
        raise ViolationError(f"L1: {run.name} never finishes: {run.error}")

    def _trigger_instead(self, run: Run) -> None:
        """Follow the hint of a run whose clears count from 0 again: trigger a run with its dates and take_over.

        After that the run itself succeeds, except in replace mode: then the triggered run has replaced the rows.
        """
        self.triggered += 1
        instead = Run(
            sim=self.sim,
            log=self.log,
            name=f"t{self.triggered}",
            hours=run.hours,
            replace="mode=replace" in str(run.error),
            take_over=True,
            run_after=LAST_HOUR,
        )
        instead.pipeline = run.pipeline
        self.sim.trace.append(f"TRIGGER {instead.name} instead of {run.name}")
        self._finish(instead, once_more=False)
        run.refused = run.refused or instead.refused
        if run.replace or run.refused:
            return
        run.clear(0)
        for _ in range(3000):
            if run.done:
                break
            run.step()
            self.oracle.check_new()
        if run.error is not None:
            raise ViolationError(f"L1: {run.name} fails after the step in its hint: {run.error}")

    def _check_the_end(self) -> None:
        entries = self.oracle.entries_before
        for entry in entries:
            if entry["granted"] is not None:
                raise ViolationError(
                    f"L2: a grant of {entry['interval']} remains: {entry['granted']['request']}"
                )
        for run in self.runs:
            if run.hours is None or run.refused:
                continue
            reached = keys.instant(at(run.hours[0]))
            for entry in entries:
                if entry["committed"] and entry["interval"][0] <= reached < entry["interval"][1]:
                    reached = entry["interval"][1]
            if reached < keys.instant(at(run.hours[1])):
                raise ViolationError(
                    f"L3: gap at {reached} in {span(*run.hours)} although every run succeeded"
                )


@dataclass
class Findings:
    """The results of a range of seeds."""

    schedules: int = 0
    steps: int = 0
    commits: int = 0
    reports_used: int = 0
    compactions: int = 0
    deletes: int = 0
    violations: list[tuple[int, str]] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)


def _cache_decoding() -> None:
    """Parse equal bytes once: values are frozen, and 20,000 schedules read the same pages many times."""
    for stored in (Root, Page, Plan, Claim, Report, Record, Compaction):
        if not hasattr(stored.decode, "cache_clear"):
            cached = functools.lru_cache(maxsize=2048)(stored.decode)
            setattr(stored, "decode", staticmethod(cached))  # noqa: B010 - mypy refuses the assignment


def explore(first_seed: int, schedules: int, *, stop_after: int = 1) -> Findings:
    """Run `schedules` seeds from `first_seed` on, or until `stop_after` of them broke the promise."""
    _cache_decoding()
    # Most of the objects live long: garbage collection took a tenth of the time.
    gc.set_threshold(50_000, 20, 50)
    findings = Findings()
    for seed in range(first_seed, first_seed + schedules):
        schedule = Schedule(seed)
        broken = schedule.run()
        findings.schedules += 1
        findings.steps += schedule.steps
        findings.reports_used += sum(run.used for run in schedule.runs)
        findings.compactions += len(schedule.oracle.published)
        findings.deletes += schedule.oracle.deletes
        findings.commits += sum(1 for body in schedule.sim.landed if b'"record":"commits/' in body)
        if broken:
            findings.violations.append((seed, broken))
            findings.kinds[broken.split(":")[0]] += 1
            if len(findings.violations) >= stop_after:
                break
    return findings
