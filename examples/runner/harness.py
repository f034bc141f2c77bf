"""The harness of an example: the running stack, its own copies of a DAG and a job file, and the buttons of Airflow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from examples.checks import CheckResult
from examples.checks.lake import Lake
from examples.demo.console import Console
from examples.demo.kill_proxy import Kill, KillProxy
from examples.runner.copies import module_of
from examples.runner.publisher_kill import KillResult, PublisherKillProxy
from examples.runner.writer_kill import Moment, WriterKill
from tallystick_devstack.airflow_api import AirflowApi
from tallystick_devstack.info import StackInfo

T = TypeVar("T")
RUN_S = 300.0
# The lakes of all examples, the same prefix as in dags/examples/*.py.
LAKES = "s3://lake/examples"
PLAN, STAGE, COMMIT, PUBLISH = "plan", "stage", "commit", "publish"
_POLL_S = 0.25
_PROXY_LINES = """
# Added by the example to its copy of this file: for a while its tasks reach S3 through a proxy.
os.environ["AWS_ENDPOINT_URL_S3"] = {url!r}
"""


class ExampleFailedError(Exception):
    """The example had an unexpected result."""


class Example(Protocol):
    """One example. Each method is called once, in this order; after `with_kill` (if there is a kill), `check` again."""

    def fill(self) -> int:
        """Create topics and receivers and produce the input of both rounds; return the number of records."""
        ...

    def without_kill(self) -> None:
        """Run the first intervals, and the rest of what the example shows."""
        ...

    def check(self) -> CheckResult:
        """Compare all results so far with a reference that is computed independently. Called after each round."""
        ...

    def with_kill(self) -> KillResult | WriterKill:
        """Run one more interval while one of its tasks is killed, until it succeeds; return the kill."""
        ...


def day(number: int) -> datetime:
    """Return midnight UTC at the start of a day of January 2013."""
    return datetime(2013, 1, number, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness:
    """One example on one stack. `folder` belongs to the example: outputs on the disk, and the record of what was sent."""

    name: str
    info: StackInfo
    project: Path
    folder: Path
    console: Console
    api: AirflowApi = field(repr=False)

    @property
    def variables(self) -> dict[str, str]:
        """The variables with which a process uses the stack: AWS_*, TALLYSTICK_KAFKA_DEFAULT, ..."""
        return self.info.environment()

    @property
    def kafka(self) -> dict[str, str]:
        """The settings with which librdkafka reaches the Kafka broker, with user and password."""
        return self.info.kafka_client()

    @property
    def registry(self) -> dict[str, str]:
        """The settings with which confluent-kafka's client reaches the schema registry, with user and password."""
        found = json.loads(self.variables["TALLYSTICK_REGISTRY_DEFAULT"])
        login = f"{found['username']}:{found['password']}"
        return {"url": found["urls"], "basic.auth.user.info": login}

    @property
    def lake(self) -> str:
        """The lake URI."""
        return f"{LAKES}/{self.name}"

    def open_lake(self) -> Lake:
        """Return the lake as a check reads it."""
        variables = self.variables
        bucket, _, prefix = self.lake.removeprefix("s3://").partition("/")
        return Lake(
            endpoint_url=variables["AWS_ENDPOINT_URL_S3"],
            bucket=bucket,
            prefix=prefix,
            access_key_id=variables["AWS_ACCESS_KEY_ID"],
            secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
            region=variables["AWS_REGION"],
        )

    @property
    def sent(self) -> Path:
        """The producer's record of what it sent."""
        return self.folder / "sent.jsonl"

    @property
    def dag_file(self) -> Path:
        """The copy of the DAG file in dags/examples that this stack's Airflow reads."""
        return self.project / "dags" / "examples" / f"{module_of(self.name)}.py"

    @property
    def job_file(self) -> Path:
        """The copy of the job file in spark_jobs/examples that its tasks run."""
        return self.project / "spark_jobs" / "examples" / f"{module_of(self.name)}.py"

    def log(self, text: str) -> None:
        """Print a line with the name of the example."""
        self.console.log(f"[{self.name}] {text}")

    def require(self, condition: bool, message: str) -> None:
        """Raise ExampleFailedError with this message unless the condition is true."""
        if not condition:
            raise ExampleFailedError(message)

    # ------------------------------------------------------------ buttons

    def catch_up(self, count: int) -> list[str]:
        """Switch the DAG on, wait until its scheduled runs succeed, and return their ids, the earliest first."""
        self.api.wait_for_dag(self.name, deadline_s=RUN_S)
        self.api.set_paused(self.name, paused=False)

        def ended() -> list[str] | None:
            runs = [r for r in self.api.runs(self.name) if r["run_type"] == "scheduled"]
            over = [r for r in runs if r["state"] in ("success", "failed")]
            if len(over) < count:
                return None
            failed = [str(r["dag_run_id"]) for r in over if r["state"] != "success"]
            self.require(not failed, f"failed: {', '.join(failed)}")
            return [
                str(r["dag_run_id"]) for r in sorted(over, key=lambda r: str(r["logical_date"]))
            ]

        return self.poll(ended, f"{count} scheduled runs that have ended")

    def trigger(self, start: datetime, end: datetime, **conf: str) -> str:
        """Press Trigger for [start, end), and return the run's id; switch the DAG on if it is off."""
        self.api.wait_for_dag(self.name, deadline_s=RUN_S)
        self.api.set_paused(self.name, paused=False)
        span = {"from": start.isoformat(), "to": end.isoformat()}
        return str(self.api.trigger(self.name, conf={**span, **conf})["dag_run_id"])

    def trigger_refresh(self) -> str:
        """Press Trigger with mode=refresh for the whole ledger, and return the run's id."""
        return str(self.api.trigger(self.name, conf={"mode": "refresh"})["dag_run_id"])

    def wait_for_success(self, run_id: str, *, dag: str | None = None) -> None:
        """Wait until a run has ended, and raise ExampleFailedError unless it succeeded."""
        name = dag or self.name
        run = self.api.wait_for_run(name, run_id, deadline_s=RUN_S)
        self.require(
            run["state"] == "success",
            f"run {run_id} of {name}: expected success, found {run['state']}",
        )

    def clear(self, run_id: str, task: str = PLAN) -> None:
        """Press Clear of a task with its downstream, and wait until the run succeeds again."""
        self.api.clear_tasks(self.name, run_id, [task], downstream=True)
        self.wait_for_success(run_id)

    def status(self) -> dict[str, Any]:
        """Return the output of `tally status --json` for the lake; raises ExampleFailedError if the command fails."""
        tally = Path(sys.executable).with_name("tally")
        done = subprocess.run(
            [str(tally), "status", self.lake, "--json"],
            env={**os.environ, **self.variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_S,
        )
        self.require(
            done.returncode == 0, f"tally status: exit code {done.returncode}: {done.stderr}"
        )
        status: dict[str, Any] = json.loads(done.stdout)
        return status

    def task_log(self, run_id: str, task: str) -> str:
        """Return the log of a task's last try."""
        return self.api.log(self.name, run_id, task, self.tries(run_id, task))

    def tries(self, run_id: str, task: str) -> int:
        """Return how often a task was tried."""
        return int(self.api.task(self.name, run_id, task)["try_number"])

    def change_job(self, old: str, new: str) -> None:
        """Replace one text in the job's copy; raises ExampleFailedError unless it occurs once."""
        source = self.job_file.read_text(encoding="utf-8")
        self.require(
            source.count(old) == 1,
            f"{self.job_file.name}: expected {old!r} once, found it {source.count(old)} times",
        )
        self.job_file.write_text(source.replace(old, new), encoding="utf-8")

    def set_task_environment(self, **variables: str) -> None:
        """Set environment variables of this example's tasks and drivers, by lines at the top of the DAG file's copy.

        For addresses that are known only after the stack is up: a database, a receiver. Call it before the DAG is
        switched on. Safe to repeat with other names.
        """
        source = self.dag_file.read_text(encoding="utf-8")
        self.require("\nimport os\n" in source, f"{self.dag_file.name} does not import os")
        lines = f"\nimport os\n\nos.environ.update({variables!r})\n"
        self.dag_file.write_text(source.replace("\nimport os\n", lines, 1), encoding="utf-8")

    # ------------------------------------------------------------ kills

    @contextmanager
    def through_proxy(self, proxy: KillProxy) -> Iterator[None]:
        """Route the tasks that start within the block through a proxy, by a line in the copy of the DAG file."""
        original = self.dag_file.read_text(encoding="utf-8")
        with proxy:
            self.dag_file.write_text(
                original + _PROXY_LINES.format(url=proxy.url), encoding="utf-8"
            )
            try:
                yield
            finally:
                self.dag_file.write_text(original, encoding="utf-8")

    def wait_for_kill(self, proxy: KillProxy, nth: int = 1) -> Kill:
        """Wait for the nth kill by a proxy."""

        def kill() -> Kill | None:
            return proxy.kills[nth - 1] if len(proxy.kills) >= nth else None

        return self.poll(kill, f"kill number {nth} by the proxy")

    def kill_writer(self, start: datetime, end: datetime, moment: Moment) -> WriterKill:
        """Trigger [start, end), kill a task as it writes to S3, and wait until Airflow's retry succeeds."""
        proxy = KillProxy(self.variables["AWS_ENDPOINT_URL_S3"])
        with self.through_proxy(proxy):
            run_id = self.trigger(start, end)
            self.poll(lambda: self._planned(run_id), f"plan of {run_id}")
            proxy.set(moment.rule)  # only now: plan swaps root.json, too
            kill = self.wait_for_kill(proxy)
            self.log(f"process {kill.pid} ({kill.command[:60]}): kill -9 {moment.text}")
            self.wait_for_success(run_id)
        self.require(
            self.tries(run_id, moment.task) > 1,
            f"{moment.task} of {run_id} was not tried again",
        )
        return WriterKill(pid=kill.pid, command=kill.command, moment=moment)

    def _planned(self, run_id: str) -> bool | None:
        state = self.api.task(self.name, run_id, PLAN)["state"]
        self.require(state != "failed", f"{PLAN} of {run_id} has failed")
        return state == "success" or None

    def kill_publisher(
        self,
        start: datetime,
        end: datetime,
        *,
        count_published: Callable[[], int],
        decide: Callable[[str], None] | None = None,
    ) -> KillResult:
        """Trigger [start, end), kill its publishing task in the middle, and wait until Airflow's retry succeeds.

        `count_published` returns how many rows (messages, files, calls) of the interval are published at this moment.
        `decide`: the retry needs the decision of a person, so the run fails; `decide` does what that person does, and
        then `publish` is cleared.
        """
        proxy = PublisherKillProxy(
            self.variables["AWS_ENDPOINT_URL_S3"], count_published=count_published
        )
        with self.through_proxy(proxy):
            run_id = self.trigger(start, end)
            if decide is None:
                self.wait_for_success(run_id)
            else:
                run = self.api.wait_for_run(self.name, run_id, deadline_s=RUN_S)
                self.require(
                    run["state"] == "failed",
                    f"run {run_id}: expected failed, found {run['state']}",
                )
                decide(run_id)
                self.clear(run_id, PUBLISH)
        result = proxy.result
        if result is None:
            raise ExampleFailedError(f"run {run_id} succeeded, and no process was killed")
        self.log(f"process {result.pid} ({result.command[:60]}): {result}")
        self.require(self.tries(run_id, PUBLISH) > 1, f"publish of {run_id} was not tried again")
        return result

    def poll(self, probe: Callable[[], T | None], what: str, *, deadline_s: float = RUN_S) -> T:
        """Call `probe` until it returns a value; raises ExampleFailedError after the deadline."""
        deadline = time.monotonic() + deadline_s
        while (found := probe()) is None:
            if time.monotonic() >= deadline:
                raise ExampleFailedError(f"no {what} within {deadline_s:g} s")
            time.sleep(_POLL_S)
        return found
