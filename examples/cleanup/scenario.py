"""The example `cleanup`: what killed attempts, aborted transactions and a dead producer leave, and what removes it."""

from __future__ import annotations

import re
from datetime import datetime

from examples.checks import CheckResult, run_check
from examples.checks.sent import part
from examples.cleanup import check
from examples.demo.kill_proxy import KillProxy, KillRule
from examples.runner.harness import COMMIT, RUN_S, Harness, day
from examples.runner.produce import Batch, create_topic, flights, produce
from examples.runner.publisher_kill import KillResult

TOPIC, PARTITIONS = "examples-cleanup", 3
FAILING_DAY, KILL_DAY = 1, 2
COLLECTOR = "cleanup_gc"
SOME = 40
_REPORT = re.compile(r"/attempts/[^/]+/[^/]+\.json$")
_RECORD = re.compile(r"/commits/[^/]+\.json$")


class Cleanup:
    """A day whose driver and commit are killed, a day whose publisher is killed; gc after each."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.folder = harness.folder / "per-airline"
        self.days: list[datetime] = []
        self.left_before: dict[str, int] = {}

    def fill(self) -> int:
        """Send two days of real flights, copies in aborted transactions, and in one that a dead producer leaves open."""
        batches: list[Batch] = []
        for number in (FAILING_DAY, KILL_DAY):
            records = flights(number, number, partitions=PARTITIONS)
            if number == FAILING_DAY:
                batches.append(Batch(end="open", records=records[:SOME]))
            batches.append(Batch(end="aborted", records=records[:SOME]))
            batches.append(Batch(end="committed", records=records))
        create_topic(self.harness.kafka, TOPIC, partitions=PARTITIONS)
        return produce(self.harness.kafka, TOPIC, batches, sent=self.harness.sent)

    def without_kill(self) -> None:
        """Run a day with a kill -9 before its report and one after it; then gc."""
        self._run_failing_day()
        self._collect()

    def with_kill(self) -> KillResult:
        """Run the second day; then gc."""
        file = self.folder / f"{part(day(KILL_DAY))}.jsonl"
        self.days.append(day(KILL_DAY))
        result = self.harness.kill_publisher(
            day(KILL_DAY), day(KILL_DAY + 1), count_published=lambda: int(file.exists())
        )
        self._collect()
        return result

    def check(self) -> CheckResult:
        """Check bucket, table and folder."""
        return run_check(
            lambda: check.compare(
                self.harness.open_lake(),
                self.folder,
                self.harness.sent,
                days=self.days,
                left_before=self.left_before,
            )
        )

    # ------------------------------------------------------------ failures

    def _run_failing_day(self) -> None:
        """Kill the driver between its upload and its report, then the commit between its metadata and the swap.

        The driver's retry stages again. The commit task is marked as failed, and the job is changed: another plan
        replaces the plan that was staged.
        """
        self.days.append(day(FAILING_DAY))
        proxy = KillProxy(self.harness.variables["AWS_ENDPOINT_URL_S3"])
        proxy.set(KillRule(path=_REPORT, when="before"))
        with self.harness.through_proxy(proxy):
            run_id = self.harness.trigger(day(FAILING_DAY), day(FAILING_DAY + 1))
            driver = self.harness.wait_for_kill(proxy)
            proxy.set(KillRule(path=_RECORD, when="before"))
            self.harness.log(f"killed driver {driver.pid} between upload and report")
            commit = self.harness.wait_for_kill(proxy, nth=2)
            # A retry that starts before the click is killed, too.
            proxy.set(KillRule(path=_RECORD, when="before"))
            self.harness.api.mark_task(self.harness.name, run_id, COMMIT, "failed")
            self.harness.api.wait_for_run(self.harness.name, run_id, deadline_s=RUN_S)
        self.harness.log(f"killed commit {commit.pid} between metadata and swap")
        self.harness.change_job("VERSION = 1", "VERSION = 2")
        self.harness.clear(run_id)
        keys = [
            key for key in self.harness.open_lake().listed() if f"/{part(day(FAILING_DAY))}/" in key
        ]
        attempts = {key.split("/")[5] for key in keys if "/data/" in key}
        self.left_before = {
            "superseded attempts": len(attempts) - 1,
            "landed files": sum(key.startswith("scratch/") for key in keys),
        }

    def _collect(self) -> None:
        """Trigger gc, without grace for readers of old versions."""
        before = len(self.harness.open_lake().listed())
        api = self.harness.api
        api.wait_for_dag(COLLECTOR, deadline_s=RUN_S)
        api.set_paused(COLLECTOR, paused=False)
        run_id = str(api.trigger(COLLECTOR)["dag_run_id"])
        self.harness.wait_for_success(run_id, dag=COLLECTOR)
        self.harness.log(
            f"gc: {before} objects before, {len(self.harness.open_lake().listed())} after"
        )
