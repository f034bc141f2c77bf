"""What an example plays on: the running stack, its own copies of a DAG and a job file, and the buttons of Airflow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from examples.checks import Ruling
from examples.checks.lake import Lake
from examples.demo.gate import Gate, Kill
from examples.demo.story import Story
from examples.runner.strike import Blow, Strike
from tallystick.errors import SettingsError
from tallystick_devstack.airflow_api import AirflowApi
from tallystick_devstack.info import StackInfo

T = TypeVar("T")
RUN_S = 300.0
# Where the lakes of all examples lie, as dags/examples/*.py have it.
LAKES = "s3://lake/examples"
PLAN, STAGE, COMMIT, PUBLISH = "plan", "stage", "commit", "publish"
_POLL_S = 0.25
_GATE_LINES = """
# The example's own lines, in its own copy of this file: for a while its tasks reach S3 through a gate.
os.environ["AWS_ENDPOINT_URL_S3"] = {url!r}
"""


class Missed(Exception):
    """Something did not happen as the example has it; the words say what."""


class Example(Protocol):
    """One example. Each step is called once, in this order; the last two not where nothing is to be killed."""

    def fill(self) -> int:
        """Make topics and receivers and produce the input of both rounds; return the number of records."""
        ...

    def plain(self) -> None:
        """Run the first intervals, and what else the example shows."""
        ...

    def judge(self) -> Ruling:
        """Compare all that came out so far with a reference computed otherwise. Called after each round."""
        ...

    def struck(self) -> Blow:
        """Run one more interval while its publishing task is killed, and bring it to its end; return the blow."""
        ...


def day(number: int) -> datetime:
    """Midnight UTC at which a day of January 2013 begins."""
    return datetime(2013, 1, number, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One example on one stack. `folder` is its own, for outputs on the disk and for what was sent."""

    name: str
    info: StackInfo
    project: Path
    folder: Path
    story: Story
    api: AirflowApi = field(repr=False)

    @property
    def variables(self) -> dict[str, str]:
        """What a process needs to use the stack: AWS_*, TALLYSTICK_KAFKA_DEFAULT, ..."""
        return self.info.environment()

    @property
    def kafka(self) -> dict[str, str]:
        """How librdkafka reaches the Kafka broker, with user and password."""
        return self.info.kafka_client()

    @property
    def lake(self) -> str:
        """The lake root."""
        return f"{LAKES}/{self.name}"

    def open_lake(self) -> Lake:
        """The lake as a judge reads it."""
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
        """Where the producer writes down what it sent."""
        return self.folder / "sent.jsonl"

    @property
    def dag_file(self) -> Path:
        """The copy of dags/examples/<name>.py that this stack's Airflow reads."""
        return self.project / "dags" / "examples" / f"{self.name}.py"

    @property
    def job_file(self) -> Path:
        """The copy of spark_jobs/examples/<name>.py that its tasks run."""
        return self.project / "spark_jobs" / "examples" / f"{self.name}.py"

    def say(self, text: str) -> None:
        """Tell one thing."""
        self.story.say(f"[{self.name}] {text}")

    def must(self, holds: bool, otherwise: str) -> None:
        """Raise Missed with these words unless it holds."""
        if not holds:
            raise Missed(otherwise)

    # ------------------------------------------------------------ buttons

    def catch_up(self, count: int) -> list[str]:
        """Switch the DAG on, wait until its scheduled runs are green, and return their ids, the earliest first."""
        self.api.wait_for_dag(self.name, deadline_s=RUN_S)
        self.api.set_paused(self.name, paused=False)

        def ended() -> list[str] | None:
            runs = [r for r in self.api.runs(self.name) if r["run_type"] == "scheduled"]
            over = [r for r in runs if r["state"] in ("success", "failed")]
            if len(over) < count:
                return None
            red = [str(r["dag_run_id"]) for r in over if r["state"] != "success"]
            self.must(not red, f"failed: {', '.join(red)}")
            return [
                str(r["dag_run_id"]) for r in sorted(over, key=lambda r: str(r["logical_date"]))
            ]

        return self.poll(ended, f"{count} scheduled runs that have ended")

    def start(self, start: datetime, end: datetime, **conf: str) -> str:
        """Press Trigger for a span, and return the run's id; the DAG is switched on where it is not."""
        self.api.wait_for_dag(self.name, deadline_s=RUN_S)
        self.api.set_paused(self.name, paused=False)
        span = {"from": start.isoformat(), "to": end.isoformat()}
        return str(self.api.trigger(self.name, conf={**span, **conf})["dag_run_id"])

    def refresh(self) -> str:
        """Press Trigger with mode=refresh for all of the ledger, and return the run's id."""
        return str(self.api.trigger(self.name, conf={"mode": "refresh"})["dag_run_id"])

    def green(self, run_id: str, *, dag: str | None = None) -> None:
        """Wait until a run has ended, and raise Missed unless it is green."""
        name = dag or self.name
        run = self.api.wait_for_run(name, run_id, deadline_s=RUN_S)
        self.must(run["state"] == "success", f"run {run_id} of {name} is {run['state']}")

    def clear(self, run_id: str, task: str = PLAN) -> None:
        """Press Clear of a task with its downstream, and wait until the run is green again."""
        self.api.clear_tasks(self.name, run_id, [task], downstream=True)
        self.green(run_id)

    def status(self) -> dict[str, Any]:
        """What `tally status --json` says of the lake; raises Missed where it says nothing."""
        tally = Path(sys.executable).with_name("tally")
        done = subprocess.run(
            [str(tally), "status", self.lake, "--json"],
            env={**os.environ, **self.variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_S,
        )
        self.must(done.returncode == 0, f"tally status ended with {done.returncode}: {done.stderr}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def log(self, run_id: str, task: str) -> str:
        """The log of a task's last try."""
        return self.api.log(self.name, run_id, task, self.tries(run_id, task))

    def tries(self, run_id: str, task: str) -> int:
        """How often a task was tried."""
        return int(self.api.task(self.name, run_id, task)["try_number"])

    def change_job(self, old: str, new: str) -> None:
        """Change one place of the job's copy; raises Missed where it does not stand there once."""
        source = self.job_file.read_text(encoding="utf-8")
        self.must(
            source.count(old) == 1, f"{self.job_file.name} holds {old!r} {source.count(old)} times"
        )
        self.job_file.write_text(source.replace(old, new), encoding="utf-8")

    def tell_tasks(self, **variables: str) -> None:
        """Set environment variables of this example's tasks and drivers, by lines at the top of the DAG file's copy.

        For addresses that are known only once the stack is up: a database, a receiver. Call it before the DAG is
        switched on. Safe to repeat with other names.
        """
        source = self.dag_file.read_text(encoding="utf-8")
        self.must("\nimport os\n" in source, f"{self.dag_file.name} does not import os")
        lines = f"\nimport os\n\nos.environ.update({variables!r})\n"
        self.dag_file.write_text(source.replace("\nimport os\n", lines, 1), encoding="utf-8")

    # ------------------------------------------------------------ kills

    @contextmanager
    def gate(self, gate: Gate) -> Iterator[None]:
        """Lead the tasks that start from now on through a gate, by a line in the copy of the DAG file."""
        original = self.dag_file.read_text(encoding="utf-8")
        with gate:
            self.dag_file.write_text(original + _GATE_LINES.format(url=gate.url), encoding="utf-8")
            try:
                yield
            finally:
                self.dag_file.write_text(original, encoding="utf-8")

    def killed(self, gate: Gate, nth: int = 1) -> Kill:
        """Wait for the nth kill at a gate."""

        def kill() -> Kill | None:
            return gate.kills[nth - 1] if len(gate.kills) >= nth else None

        return self.poll(kill, f"kill number {nth} at the gate")

    def strike(
        self,
        start: datetime,
        end: datetime,
        *,
        out: Callable[[], int],
        decide: Callable[[str], None] | None = None,
    ) -> Blow:
        """Trigger a span, kill its publishing task in the middle, and wait until Airflow's retry has made it green.

        `out` says how many rows (messages, files, calls) of the span are out there at this moment. `decide`: the retry
        has to ask a person, so the run fails; this is what that person does before `publish` is cleared.
        """
        strike = Strike(self.variables["AWS_ENDPOINT_URL_S3"], out=out)
        with self.gate(strike):
            run_id = self.start(start, end)
            if decide is None:
                self.green(run_id)
            else:
                run = self.api.wait_for_run(self.name, run_id, deadline_s=RUN_S)
                self.must(run["state"] == "failed", f"run {run_id} is {run['state']}, not failed")
                decide(run_id)
                self.clear(run_id, PUBLISH)
        blow = strike.blow
        if blow is None:
            raise Missed(f"the strike missed: run {run_id} was green and nobody was killed")
        self.say(f"process {blow.pid} ({blow.command[:60]}): {blow}")
        self.must(self.tries(run_id, PUBLISH) > 1, f"publish of {run_id} was not tried again")
        return blow

    def poll(self, ask: Callable[[], T | None], what: str, *, deadline_s: float = RUN_S) -> T:
        """Ask until there is an answer; raises Missed in the end."""
        deadline = time.monotonic() + deadline_s
        while (found := ask()) is None:
            if time.monotonic() >= deadline:
                raise Missed(f"no {what} within {deadline_s:g} s")
            time.sleep(_POLL_S)
        return found


def copy_files(source: Path, project: Path, names: Sequence[str]) -> None:
    """Copy the DAG and job files of these examples, so that they may be changed, and Airflow sees no others.

    Safe to repeat: the copies are written over. Raises SettingsError where one is not there.
    """
    (project / "plugins").mkdir(parents=True, exist_ok=True)
    for room in ("dags", "spark_jobs"):
        folder = project / room / "examples"
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            file = source / room / "examples" / f"{name}.py"
            if not file.is_file():
                raise SettingsError(
                    f"{file} is not there.",
                    hint="run the examples from a clone of the repository (`make example`).",
                )
            (folder / file.name).write_bytes(file.read_bytes())
