"""The example `cleanup`: what killed attempts, aborted transactions and a dead producer leave, and who takes it away."""

from __future__ import annotations

import re
from datetime import datetime

from examples.checks import Ruling, ruling
from examples.checks.sent import part
from examples.cleanup import check
from examples.demo.gate import Gate, Trap
from examples.runner.produce import Batch, create_topic, flights, produce
from examples.runner.scene import COMMIT, RUN_S, Scene, day
from examples.runner.strike import Blow

TOPIC, PARTITIONS = "examples-cleanup", 3
WORST_DAY, STRUCK_DAY = 1, 2
COLLECTOR = "cleanup_gc"
SOME = 40
_REPORT = re.compile(r"/attempts/[^/]+/[^/]+\.json$")
_RECORD = re.compile(r"/commits/[^/]+\.json$")


class Cleanup:
    """A day whose driver and whose commit are killed, one whose publisher is; gc after each."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.folder = scene.folder / "per-airline"
        self.days: list[datetime] = []
        self.left: dict[str, int] = {}

    def fill(self) -> int:
        """Two days of real flights, beside transactions that were aborted, and one that its dead producer left open."""
        batches: list[Batch] = []
        for number in (WORST_DAY, STRUCK_DAY):
            records = flights(number, number, partitions=PARTITIONS)
            if number == WORST_DAY:
                batches.append(Batch(end="open", records=records[:SOME]))
            batches.append(Batch(end="aborted", records=records[:SOME]))
            batches.append(Batch(end="committed", records=records))
        create_topic(self.scene.kafka, TOPIC, partitions=PARTITIONS)
        return produce(self.scene.kafka, TOPIC, batches, sent=self.scene.sent)

    def plain(self) -> None:
        """A day with a kill -9 at either side of its report; then gc."""
        self._worst_day()
        self._collect()

    def struck(self) -> Blow:
        """The second day; then gc."""
        file = self.folder / f"{part(day(STRUCK_DAY))}.jsonl"
        self.days.append(day(STRUCK_DAY))
        blow = self.scene.strike(
            day(STRUCK_DAY), day(STRUCK_DAY + 1), out=lambda: int(file.exists())
        )
        self._collect()
        return blow

    def judge(self) -> Ruling:
        """Bucket, table and folder."""
        return ruling(
            lambda: check.judge(
                self.scene.open_lake(),
                self.folder,
                self.scene.sent,
                days=self.days,
                left_before=self.left,
            )
        )

    # ------------------------------------------------------------ what goes wrong

    def _worst_day(self) -> None:
        """The driver dies between its upload and its report, then the commit between its metadata and the swap.

        The driver's retry stages anew. The commit is given up, and the job is changed: another plan takes the place of
        the one that was staged.
        """
        self.days.append(day(WORST_DAY))
        gate = Gate(self.scene.variables["AWS_ENDPOINT_URL_S3"])
        gate.set(Trap(path=_REPORT, when="before"))
        with self.scene.gate(gate):
            run_id = self.scene.start(day(WORST_DAY), day(WORST_DAY + 1))
            driver = self.scene.killed(gate)
            gate.set(Trap(path=_RECORD, when="before"))
            self.scene.say(f"killed driver {driver.pid} between upload and report")
            commit = self.scene.killed(gate, nth=2)
            # A retry that is quicker than the click meets the same end.
            gate.set(Trap(path=_RECORD, when="before"))
            self.scene.api.mark_task(self.scene.name, run_id, COMMIT, "failed")
            self.scene.api.wait_for_run(self.scene.name, run_id, deadline_s=RUN_S)
        self.scene.say(f"killed commit {commit.pid} between metadata and swap")
        self.scene.change_job("VERSION = 1", "VERSION = 2")
        self.scene.clear(run_id)
        keys = [
            key for key in self.scene.open_lake().listed() if f"/{part(day(WORST_DAY))}/" in key
        ]
        attempts = {key.split("/")[5] for key in keys if "/data/" in key}
        self.left = {
            "attempts that lost": len(attempts) - 1,
            "landed files": sum(key.startswith("scratch/") for key in keys),
        }

    def _collect(self) -> None:
        """Trigger gc, with no grace for readers of old versions."""
        before = len(self.scene.open_lake().listed())
        api = self.scene.api
        api.wait_for_dag(COLLECTOR, deadline_s=RUN_S)
        api.set_paused(COLLECTOR, paused=False)
        run_id = str(api.trigger(COLLECTOR)["dag_run_id"])
        self.scene.green(run_id, dag=COLLECTOR)
        self.scene.say(f"gc: {before} objects before, {len(self.scene.open_lake().listed())} after")
