"""Every door of the product, pulled through Airflow's REST API as its pages do it; after each, the lake is looked at.

A door that does not do what it must raises DoorJammed, and the demo ends with FAIL.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TypeVar

from examples.demo.example import Example
from examples.demo.gate import Gate, Kill, Trap
from examples.demo.ground import Ground
from examples.demo.sight import Sight, Watcher
from examples.demo.story import Deed, Story
from tallystick.operations.run_request import defaults
from tallystick_devstack.airflow_api import AirflowApi, Json

T = TypeVar("T")
PLAN, STAGE, COMMIT = "plan", "stage", "commit"
TASKS = (PLAN, STAGE, COMMIT)
RUN_S = 900.0
_POLL_S = 0.25
_GATE_LINES = """
# The demo's own lines, in its own copy of this file: for a while its tasks reach S3 through a gate.
import os

os.environ["AWS_ENDPOINT_URL_S3"] = {url!r}
"""
REPORTS = re.compile(r"/attempts/[^/]+/[^/]+\.json$")
ROOT = re.compile(r"/root\.json$")


class DoorJammed(Exception):
    """A door did something else than it must."""


def day(number: int) -> datetime:
    """Midnight UTC at which a day of January 2013 begins."""
    return datetime(2013, 1, number, tzinfo=UTC)


class Doors:
    """The scenario of an example, door by door; `deeds` is what happened so far.

    `master`: where Spark's tasks must run, as a driver's log says it.
    """

    def __init__(
        self,
        example: Example,
        api: AirflowApi,
        watcher: Watcher,
        ground: Ground,
        story: Story,
        *,
        master: str,
    ) -> None:
        self.deeds: list[Deed] = []
        self._master = master
        self._example = example
        self._dag = example.name
        self._api = api
        self._watcher = watcher
        self._ground = ground
        self._story = story

    def pull_all(self) -> None:
        """Pull every door in order; raises DoorJammed at the first that does not do what it must."""
        self.schedule()
        if self._example.backfilled:
            self.backfill()
        self.clear_each_task()
        self.changed_job()
        if self._example.rest_of_year:
            self.trigger_and_kill_commit()
        self.replace_and_kill_driver()

    # ------------------------------------------------------------ the doors

    def schedule(self) -> None:
        """Every interval that is due, by catch-up."""
        days = self._example.scheduled
        done = f"the DAG is switched on: catch-up of {days[0]} to {days[-1]} January"
        with self._door("schedule", done) as tell:
            self._api.wait_for_dag(self._dag, deadline_s=RUN_S)
            self._api.set_paused(self._dag, paused=False)
            runs = self._runs_of("scheduled", len(days))
            self._expect_green(runs)
            sight = self._expect_days(*days)
            for run in runs:
                told = self._log(str(run["dag_run_id"]), STAGE)
                self._must(f" at {self._master}: " in told, f"Spark did not run at {self._master}")
            tell(
                f"{len(days)} intervals committed, {sight.flights:,} flights, {sight.dead} dead letters"
            )

    def backfill(self) -> None:
        """The days before the schedule's, backwards, two at a time."""
        days = self._example.backfilled
        first, last = days[0], days[-1]
        done = f"backfill of {first} to {last} January, running backwards, two at a time"
        with self._door("backfill", done) as tell:
            created = self._api.create_backfill(
                self._dag, day(first), day(last), backwards=True, max_active_runs=2
            )
            runs = self._runs_of("backfill", len(days))
            self._expect_green(runs)
            self._api.wait_for_backfill(int(created["id"]), deadline_s=RUN_S)
            sight = self._expect_days(*days, *self._example.scheduled)
            self._must(_latest_first(runs), f"it did not begin with {last} January")
            together = _most_at_once(runs)
            self._must(together <= 2, f"{together} runs at once")
            tell(
                f"{len(days)} more intervals, {last} January first, {sight.flights:,} flights, each once"
            )

    def clear_each_task(self) -> None:
        """Commit, stage and plan of 5 January, one after another: nothing is to be done."""
        run_id = self._run_id_of(day(5))
        before = self._watcher.look()
        for task in reversed(TASKS):
            with self._door(
                f"clear {task}", f"Clear of {task} (with downstream) of 5 January"
            ) as tell:
                self._clear(run_id, task)
                after = self._watcher.look()
                self._must(after.version == before.version, f"version {after.version} is new")
                fresh = after.objects - before.objects
                self._must(not fresh, f"new objects: {sorted(fresh)[:2]}")
                if task != COMMIT:
                    self._must(
                        "no Spark is started" in self._log(run_id, STAGE), "Spark was started"
                    )
                tell(f"green; still version {after.version}, no object written, no JVM started")

    def changed_job(self) -> None:
        """5 January again, with another job file."""
        run_id, start = self._run_id_of(day(5)), day(5)
        before = self._watcher.look()
        with self._door(
            "new job", "the job file is changed, then Clear of plan of 5 January"
        ) as tell:
            source = self._ground.job.read_text()
            self._ground.job.write_text(source + "\n# The demo changed this file.\n")
            self._clear(run_id, PLAN)
            after = self._watcher.look()
            was, now = before.entry(start), after.entry(start)
            assert was.committed is not None
            assert now.committed is not None
            self._must(now.committed.plan != was.committed.plan, "the old plan stands")
            self._must(after.rows == before.rows, f"{before.rows} rows became {after.rows}")
            others = {e.interval: e.committed for e in before.committed if e != was}
            same = all(others.get(e.interval, e.committed) == e.committed for e in after.committed)
            self._must(same, "another interval changed")
            new = len(after.data_files(now.interval.part) - before.data_files(now.interval.part))
            tell(
                f"replaced in one swap: generation {was.committed.generation} -> {now.committed.generation}, "
                f"{new} new files, the same {now.committed.totals.records:,} flights"
            )

    def trigger_and_kill_commit(self) -> None:
        """The rest of the year by hand; the commit task dies between its PUT and the reply."""
        before = self._watcher.look()
        with self._gate() as gate:
            done = "Trigger without dates: the rest of the year, one interval"
            with self._door("trigger", done) as tell:
                pressed = self._api.press_trigger(self._dag, defaults())
                run_id = str(pressed["dag_run_id"])
                self._wait_task(run_id, PLAN, "success")
                # From here on the only swap of the root is the commit's.
                gate.set(Trap(path=ROOT, when="after"))
                self._wait_task(run_id, STAGE, "success")
                staged = self._watcher.look()
                self._must(staged.rows == before.rows, "staged rows are visible")
                tell("planned and staged; not one row is visible yet")
            done = "kill -9 of the commit task between its PUT of root.json and the reply"
            with self._door("kill commit", done) as tell:
                kill = self._wait_kill(gate)
                landed = self._watcher.look()
                self._must(landed.version == staged.version + 1, f"version {landed.version}")
                self._story.say(
                    f"killed process {kill.pid} over {kill.path}; version {landed.version} has landed"
                )
                self._green(run_id)
                after = self._watcher.look()
                self._must(after.version == landed.version, "the retry committed again")
                self._must(after.rows == landed.rows, f"{landed.rows} rows became {after.rows}")
                self._must(after.once, f"not once: {after.rows}")
                tries = self._tries(run_id, COMMIT)
                self._must(tries > 1, "the commit was not tried again")
                self._must(
                    "already" in self._log(run_id, COMMIT), "the retry did not find the commit"
                )
                tell(
                    f"try {tries} found it committed already: {after.flights:,} flights, each once"
                )

    def replace_and_kill_driver(self) -> None:
        """2 January is replaced by hand; the driver dies between its upload and its report."""
        start = day(2)
        before = self._watcher.look()
        part = before.entry(start).interval.part
        with self._gate() as gate:
            gate.set(Trap(path=REPORTS, when="before"))
            done = "Trigger with mode=replace of 2 January; kill -9 of its driver between upload and report"
            with self._door("kill driver", done) as tell:
                form = {
                    **defaults(),
                    "mode": "replace",
                    "from": "2013-01-02T00:00:00Z",
                    "to": "2013-01-03T00:00:00Z",
                }
                run_id = str(self._api.press_trigger(self._dag, form)["dag_run_id"])
                kill = self._wait_kill(gate)
                killed = self._watcher.look()
                left = len(killed.data_files(part) - before.data_files(part))
                reports = sorted(killed.reports - before.reports)
                self._must(left > 0, "nothing was uploaded")
                self._must(not reports, f"there is a report: {reports[:1]}")
                self._must(killed.rows == before.rows, f"{before.rows} rows became {killed.rows}")
                self._must("--attempt" in kill.command, f"killed was {kill.command[:200]}")
                self._story.say(
                    f"killed driver {kill.pid}: {left} files uploaded, no report, nothing visible"
                )
                tell(f"{left} files uploaded, no report: the old rows stand")
            with self._door("its retry", "nothing: Airflow tries the stage task again") as tell:
                self._green(run_id)
                after = self._watcher.look()
                was, now = before.entry(start).committed, after.entry(start).committed
                assert was is not None
                assert now is not None
                tries = self._tries(run_id, STAGE)
                self._must(tries > 1, "the stage task was not tried again")
                self._must(now.plan != was.plan, "2 January was not replaced")
                self._must(after.rows == before.rows, f"{before.rows} rows became {after.rows}")
                self._must(not after.granted, "a grant dangles")
                tell(
                    f"try {tries} staged under a prefix of its own and replaced the day, each flight once"
                )

    # ------------------------------------------------------------ how

    @contextmanager
    def _door(self, door: str, done: str) -> Iterator[Callable[[str], None]]:
        self._story.say(f"[{door}] {done}")
        began = time.monotonic()
        told: list[str] = []
        try:
            yield told.append
        except BaseException as error:
            message = str(error) or type(error).__name__
            self._note(door, done, message, began, held=False)
            raise
        self._note(door, done, told[0], began, held=True)

    def _note(self, door: str, done: str, message: str, began: float, *, held: bool) -> None:
        elapsed_s = time.monotonic() - began
        self.deeds.append(
            Deed(door=door, done=done, message=message, elapsed_s=elapsed_s, held=held)
        )
        self._story.say(f"[{door}] {'' if held else 'BAD: '}{message}")

    @contextmanager
    def _gate(self) -> Iterator[Gate]:
        """Lead the tasks that start from now on through a gate, by a line in the demo's copy of the DAG file."""
        original = self._ground.dag.read_text()
        address = self._watcher.endpoint
        with Gate(address) as gate:
            self._ground.dag.write_text(original + _GATE_LINES.format(url=gate.url))
            try:
                yield gate
            finally:
                self._ground.dag.write_text(original)

    def _must(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise DoorJammed(otherwise)

    def _expect_days(self, *days: int) -> Sight:
        sight = self._watcher.look()
        starts = [e.interval.start for e in sight.committed]
        self._must(starts == [day(n) for n in days], f"committed are {starts}")
        self._must(not sight.granted, "a grant dangles")
        self._must(sight.once, f"not once: {sight.rows}")
        return sight

    def _runs_of(self, kind: str, count: int) -> list[Json]:
        """Wait until that many runs of a kind have ended."""

        def ended() -> list[Json] | None:
            runs = [r for r in self._api.runs(self._dag) if r["run_type"] == kind]
            over = [r for r in runs if r["state"] in ("success", "failed")]
            return runs if len(over) == len(runs) == count else None

        return self._poll(ended, RUN_S, f"{count} {kind} runs")

    def _expect_green(self, runs: Sequence[Json]) -> None:
        red = [str(r["dag_run_id"]) for r in runs if r["state"] != "success"]
        self._must(not red, f"failed: {', '.join(red)}")

    def _run_id_of(self, start: datetime) -> str:
        for run in self._api.runs(self._dag):
            at = run["data_interval_start"]
            if at is not None and datetime.fromisoformat(at) == start:
                return str(run["dag_run_id"])
        raise DoorJammed(f"no run has the interval of {start:%-d %B}")

    def _clear(self, run_id: str, task: str) -> None:
        again = TASKS[TASKS.index(task) :]
        tries = {one: self._tries(run_id, one) for one in again}
        self._api.clear_tasks(self._dag, run_id, [task], downstream=True)
        self._green(run_id)
        for one in again:
            self._must(self._tries(run_id, one) > tries[one], f"{one} did not run again")

    def _green(self, run_id: str) -> None:
        run = self._api.wait_for_run(self._dag, run_id, deadline_s=RUN_S)
        self._must(run["state"] == "success", f"run {run_id} is {run['state']}")

    def _wait_task(self, run_id: str, task: str, state: str) -> None:
        found = self._api.wait_for_task(self._dag, run_id, task, deadline_s=RUN_S)
        self._must(found["state"] == state, f"{task} is {found['state']}")

    def _wait_kill(self, gate: Gate) -> Kill:
        kills = self._poll(lambda: gate.kills or None, RUN_S, "kill at the gate")
        return kills[0]

    def _tries(self, run_id: str, task: str) -> int:
        return int(self._api.task(self._dag, run_id, task)["try_number"])

    def _log(self, run_id: str, task: str) -> str:
        return self._api.log(self._dag, run_id, task, self._tries(run_id, task))

    def _poll(self, ask: Callable[[], T | None], deadline_s: float, what: str) -> T:
        deadline = time.monotonic() + deadline_s
        while (found := ask()) is None:
            if time.monotonic() >= deadline:
                raise DoorJammed(f"no {what} within {deadline_s:g} s")
            time.sleep(_POLL_S)
        return found


def _latest_first(runs: Sequence[Json]) -> bool:
    """Whether the run of the latest interval began first."""
    began = sorted(runs, key=lambda run: str(run["start_date"]))
    return bool(began[0]["logical_date"] == max(run["logical_date"] for run in runs))


def _most_at_once(runs: Sequence[Json]) -> int:
    """How many runs were running at one moment, at most."""
    spans = [(str(run["start_date"]), str(run["end_date"])) for run in runs]
    return max(sum(began <= at < ended for began, ended in spans) for at, _ in spans)
