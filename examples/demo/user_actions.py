"""Every user action, with the requests that Airflow's pages send to its REST API; after each, the lake is checked.

An action with an unexpected result raises ActionFailedError, and the demo ends with FAIL.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TypeVar

from examples.demo.console import Console, Step
from examples.demo.kill_proxy import Kill, KillProxy, KillRule
from examples.demo.lake_state import LakeReader, LakeState
from examples.demo.pipelines import DemoPipeline
from examples.demo.workspace import Workspace
from tallystick.operations.run_request import defaults
from tallystick_devstack.airflow_api import AirflowApi, Json

T = TypeVar("T")
PLAN, STAGE, COMMIT = "plan", "stage", "commit"
TASKS = (PLAN, STAGE, COMMIT)
RUN_S = 900.0
_POLL_S = 0.25
_PROXY_LINES = """
# Added by the demo to its copy of this file: for a while its tasks reach S3 through a proxy.
import os

os.environ["AWS_ENDPOINT_URL_S3"] = {url!r}
"""
REPORTS = re.compile(r"/attempts/[^/]+/[^/]+\.json$")
ROOT = re.compile(r"/root\.json$")


class ActionFailedError(Exception):
    """A user action had an unexpected result."""


def day(number: int) -> datetime:
    """Return midnight UTC at the start of a day of January 2013."""
    return datetime(2013, 1, number, tzinfo=UTC)


class UserActions:
    """The scenario of a pipeline, action by action; `steps` are the actions so far.

    `master`: where Spark's tasks must run, as the driver's log names it.
    """

    def __init__(
        self,
        pipeline: DemoPipeline,
        api: AirflowApi,
        lake: LakeReader,
        workspace: Workspace,
        console: Console,
        *,
        master: str,
    ) -> None:
        self.steps: list[Step] = []
        self._master = master
        self._pipeline = pipeline
        self._dag = pipeline.name
        self._api = api
        self._lake = lake
        self._workspace = workspace
        self._console = console

    def run_all(self) -> None:
        """Run all actions in order; raises ActionFailedError at the first unexpected result."""
        self.schedule()
        if self._pipeline.backfilled:
            self.backfill()
        self.clear_each_task()
        self.changed_job()
        if self._pipeline.rest_of_year:
            self.trigger_and_kill_commit()
        self.replace_and_kill_driver()

    # ------------------------------------------------------------ actions

    def schedule(self) -> None:
        """Run every interval that is due, by catch-up."""
        days = self._pipeline.scheduled
        done = f"the DAG is switched on: catch-up of {days[0]} to {days[-1]} January"
        with self._action("schedule", done) as report:
            self._api.wait_for_dag(self._dag, deadline_s=RUN_S)
            self._api.set_paused(self._dag, paused=False)
            runs = self._runs_of("scheduled", len(days))
            self._expect_success(runs)
            state = self._expect_days(*days)
            starts = self._spark_starts([str(run["dag_run_id"]) for run in runs])
            report(
                f"{len(days)} intervals committed, {state.flights:,} flights, {state.dead} dead letters; "
                f"Spark started {starts} times"
            )

    def _spark_starts(self, runs: Sequence[str]) -> int:
        """Return how many of the runs started Spark; the others must use the report of one of them."""
        logs = [self._log(run, STAGE) for run in runs]
        started = [f" at {self._master}: " in log for log in logs]
        self._require(any(started), f"Spark did not run at {self._master}")
        together = all(
            "uses its report" in log for log, own in zip(logs, started, strict=True) if not own
        )
        self._require(together, "a run neither started Spark nor used the report of another run")
        return sum(started)

    def backfill(self) -> None:
        """Run the days before those of the schedule, backwards, two at a time."""
        days = self._pipeline.backfilled
        first, last = days[0], days[-1]
        done = f"backfill of {first} to {last} January, running backwards, two at a time"
        with self._action("backfill", done) as report:
            created = self._api.create_backfill(
                self._dag, day(first), day(last), backwards=True, max_active_runs=2
            )
            runs = self._runs_of("backfill", len(days))
            self._expect_success(runs)
            self._api.wait_for_backfill(int(created["id"]), deadline_s=RUN_S)
            state = self._expect_days(*days, *self._pipeline.scheduled)
            self._require(_latest_first(runs), f"{last} January was not the first")
            together = _most_at_once(runs)
            self._require(
                together <= 2, f"expected at most 2 runs at the same time, found {together}"
            )
            report(
                f"{len(days)} more intervals, {last} January first, {state.flights:,} flights, each once"
            )

    def clear_each_task(self) -> None:
        """Clear commit, stage and plan of 5 January, one after another: nothing changes."""
        run_id = self._run_id_of(day(5))
        before = self._lake.read()
        for task in reversed(TASKS):
            with self._action(
                f"clear {task}", f"Clear of {task} (with downstream) of 5 January"
            ) as report:
                self._clear(run_id, task)
                after = self._lake.read()
                self._require(
                    after.version == before.version,
                    f"expected version {before.version}, found {after.version}",
                )
                fresh = after.objects - before.objects
                self._require(not fresh, f"new objects: {sorted(fresh)[:2]}")
                if task != COMMIT:
                    self._require(
                        "no Spark is started" in self._log(run_id, STAGE), "Spark was started"
                    )
                report(f"green; still version {after.version}, no object written, no JVM started")

    def changed_job(self) -> None:
        """Clear 5 January after a change of the job file."""
        run_id, start = self._run_id_of(day(5)), day(5)
        before = self._lake.read()
        with self._action(
            "new job", "the job file is changed, then Clear of plan of 5 January"
        ) as report:
            source = self._workspace.job.read_text()
            self._workspace.job.write_text(source + "\n# The demo changed this file.\n")
            self._clear(run_id, PLAN)
            after = self._lake.read()
            was, now = before.entry(start), after.entry(start)
            assert was.committed is not None
            assert now.committed is not None
            self._require(now.committed.plan != was.committed.plan, "the plan did not change")
            self._require(after.rows == before.rows, f"{before.rows} rows became {after.rows}")
            others = {e.interval: e.committed for e in before.committed if e != was}
            unchanged = all(
                others.get(e.interval, e.committed) == e.committed for e in after.committed
            )
            self._require(unchanged, "another interval changed")
            new = len(after.data_files(now.interval.part) - before.data_files(now.interval.part))
            report(
                f"replaced in one swap: generation {was.committed.generation} -> {now.committed.generation}, "
                f"{new} new files, the same {now.committed.totals.records:,} flights"
            )

    def trigger_and_kill_commit(self) -> None:
        """Run the rest of the year by Trigger; the commit task dies between its PUT and the reply."""
        before = self._lake.read()
        with self._kill_proxy() as proxy:
            done = "Trigger without dates: the rest of the year, one interval"
            with self._action("trigger", done) as report:
                pressed = self._api.press_trigger(self._dag, defaults())
                run_id = str(pressed["dag_run_id"])
                self._wait_task(run_id, PLAN, "success")
                # From here on the only swap of the root is that of the commit.
                proxy.set(KillRule(path=ROOT, when="after"))
                self._wait_task(run_id, STAGE, "success")
                staged = self._lake.read()
                self._require(staged.rows == before.rows, "staged rows are visible")
                report("planned and staged; no row is visible yet")
            done = "kill -9 of the commit task between its PUT of root.json and the reply"
            with self._action("kill commit", done) as report:
                kill = self._wait_kill(proxy)
                landed = self._lake.read()
                self._require(landed.version == staged.version + 1, f"version {landed.version}")
                self._console.log(
                    f"killed process {kill.pid} during its PUT of {kill.path}; version {landed.version} is applied"
                )
                self._wait_for_success(run_id)
                after = self._lake.read()
                self._require(after.version == landed.version, "the retry committed again")
                self._require(after.rows == landed.rows, f"{landed.rows} rows became {after.rows}")
                self._require(after.once, f"not each flight once: {after.rows}")
                tries = self._tries(run_id, COMMIT)
                self._require(tries > 1, "the commit was not tried again")
                self._require(
                    "already" in self._log(run_id, COMMIT), "the retry did not detect the commit"
                )
                report(f"try {tries} detected the commit: {after.flights:,} flights, each once")

    def replace_and_kill_driver(self) -> None:
        """Replace 2 January by Trigger; the driver dies between its upload and its report."""
        start = day(2)
        before = self._lake.read()
        part = before.entry(start).interval.part
        with self._kill_proxy() as proxy:
            proxy.set(KillRule(path=REPORTS, when="before"))
            done = "Trigger with mode=replace of 2 January; kill -9 of its driver between upload and report"
            with self._action("kill driver", done) as report:
                form = {
                    **defaults(),
                    "mode": "replace",
                    "from": "2013-01-02T00:00:00Z",
                    "to": "2013-01-03T00:00:00Z",
                }
                run_id = str(self._api.press_trigger(self._dag, form)["dag_run_id"])
                kill = self._wait_kill(proxy)
                killed = self._lake.read()
                left = len(killed.data_files(part) - before.data_files(part))
                reports = sorted(killed.reports - before.reports)
                self._require(left > 0, "nothing was uploaded")
                self._require(not reports, f"there is a report: {reports[:1]}")
                self._require(
                    killed.rows == before.rows, f"{before.rows} rows became {killed.rows}"
                )
                self._require(
                    "--attempt" in kill.command, f"another process was killed: {kill.command[:200]}"
                )
                self._console.log(
                    f"killed driver {kill.pid}: {left} files uploaded, no report, nothing visible"
                )
                report(f"{left} files uploaded, no report: the old rows are unchanged")
            with self._action("its retry", "nothing: Airflow retries the stage task") as report:
                self._wait_for_success(run_id)
                after = self._lake.read()
                was, now = before.entry(start).committed, after.entry(start).committed
                assert was is not None
                assert now is not None
                tries = self._tries(run_id, STAGE)
                self._require(tries > 1, "the stage task was not tried again")
                self._require(now.plan != was.plan, "2 January was not replaced")
                self._require(after.rows == before.rows, f"{before.rows} rows became {after.rows}")
                self._require(not after.granted, "a grant is left")
                report(
                    f"try {tries} staged under its own prefix and replaced the day, each flight once"
                )

    # ------------------------------------------------------------ helpers

    @contextmanager
    def _action(self, action: str, done: str) -> Iterator[Callable[[str], None]]:
        """Run the block as a step; the block passes its result to the function that this yields."""
        self._console.log(f"[{action}] {done}")
        began = time.monotonic()
        results: list[str] = []
        try:
            yield results.append
        except BaseException as error:
            message = str(error) or type(error).__name__
            self._record(action, done, message, began, passed=False)
            raise
        self._record(action, done, results[0], began, passed=True)

    def _record(self, action: str, done: str, result: str, began: float, *, passed: bool) -> None:
        elapsed_s = time.monotonic() - began
        self.steps.append(
            Step(action=action, done=done, result=result, elapsed_s=elapsed_s, passed=passed)
        )
        self._console.log(f"[{action}] {'' if passed else 'BAD: '}{result}")

    @contextmanager
    def _kill_proxy(self) -> Iterator[KillProxy]:
        """Route the tasks that start within the block through a proxy, by a line in the demo's copy of the DAG file."""
        original = self._workspace.dag.read_text()
        address = self._lake.endpoint
        with KillProxy(address) as proxy:
            self._workspace.dag.write_text(original + _PROXY_LINES.format(url=proxy.url))
            try:
                yield proxy
            finally:
                self._workspace.dag.write_text(original)

    def _require(self, condition: bool, message: str) -> None:
        if not condition:
            raise ActionFailedError(message)

    def _expect_days(self, *days: int) -> LakeState:
        state = self._lake.read()
        starts = [e.interval.start for e in state.committed]
        expected = [day(n) for n in days]
        self._require(starts == expected, f"committed: expected {expected}, found {starts}")
        self._require(not state.granted, "a grant is left")
        self._require(state.once, f"not each flight once: {state.rows}")
        return state

    def _runs_of(self, kind: str, count: int) -> list[Json]:
        """Wait until `count` runs of a kind have ended."""

        def ended() -> list[Json] | None:
            runs = [r for r in self._api.runs(self._dag) if r["run_type"] == kind]
            over = [r for r in runs if r["state"] in ("success", "failed")]
            return runs if len(over) == len(runs) == count else None

        return self._poll(ended, RUN_S, f"{count} {kind} runs")

    def _expect_success(self, runs: Sequence[Json]) -> None:
        failed = [str(r["dag_run_id"]) for r in runs if r["state"] != "success"]
        self._require(not failed, f"failed: {', '.join(failed)}")

    def _run_id_of(self, start: datetime) -> str:
        for run in self._api.runs(self._dag):
            at = run["data_interval_start"]
            if at is not None and datetime.fromisoformat(at) == start:
                return str(run["dag_run_id"])
        raise ActionFailedError(f"found no run with the interval of {start:%-d %B}")

    def _clear(self, run_id: str, task: str) -> None:
        cleared = TASKS[TASKS.index(task) :]
        tries = {name: self._tries(run_id, name) for name in cleared}
        self._api.clear_tasks(self._dag, run_id, [task], downstream=True)
        self._wait_for_success(run_id)
        for name in cleared:
            self._require(self._tries(run_id, name) > tries[name], f"{name} did not run again")

    def _wait_for_success(self, run_id: str) -> None:
        run = self._api.wait_for_run(self._dag, run_id, deadline_s=RUN_S)
        self._require(
            run["state"] == "success", f"run {run_id}: expected success, found {run['state']}"
        )

    def _wait_task(self, run_id: str, task: str, state: str) -> None:
        found = self._api.wait_for_task(self._dag, run_id, task, deadline_s=RUN_S)
        self._require(found["state"] == state, f"{task}: expected {state}, found {found['state']}")

    def _wait_kill(self, proxy: KillProxy) -> Kill:
        kills = self._poll(lambda: proxy.kills or None, RUN_S, "kill by the proxy")
        return kills[0]

    def _tries(self, run_id: str, task: str) -> int:
        return int(self._api.task(self._dag, run_id, task)["try_number"])

    def _log(self, run_id: str, task: str) -> str:
        return self._api.log(self._dag, run_id, task, self._tries(run_id, task))

    def _poll(self, probe: Callable[[], T | None], deadline_s: float, what: str) -> T:
        deadline = time.monotonic() + deadline_s
        while (found := probe()) is None:
            if time.monotonic() >= deadline:
                raise ActionFailedError(f"no {what} within {deadline_s:g} s")
            time.sleep(_POLL_S)
        return found


def _latest_first(runs: Sequence[Json]) -> bool:
    """Return True if the run of the latest interval began first."""
    began = sorted(runs, key=lambda run: str(run["start_date"]))
    return bool(began[0]["logical_date"] == max(run["logical_date"] for run in runs))


def _most_at_once(runs: Sequence[Json]) -> int:
    """Return the largest number of runs that were running at the same time."""
    spans = [(str(run["start_date"]), str(run["end_date"])) for run in runs]
    return max(sum(began <= at < ended for began, ended in spans) for at, _ in spans)
