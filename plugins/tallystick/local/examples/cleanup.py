"""The example `cleanup`: what killed attempts, aborted transactions and a dead producer leave, and who takes it away."""

from __future__ import annotations

import re
from datetime import datetime

from tallystick.local.demo.gate import Gate, Trap
from tallystick.local.examples.judges import Ruling, cleanup, ruling
from tallystick.local.examples.judges.cleanup import Lake
from tallystick.local.examples.judges.sent import part
from tallystick.local.examples.produce import Batch, create_topic, flights, produce
from tallystick.local.examples.scene import COMMIT, RUN_S, STAGE, Scene, day
from tallystick.local.examples.strike import Blow

TOPIC, PARTITIONS = "examples-cleanup", 3
DRIVER_DAY, COMMIT_DAY, STRUCK_DAY = 1, 2, 3
COLLECTOR = "cleanup_gc"
SOME = 40
_REPORT = re.compile(r"/attempts/[^/]+/[^/]+\.json$")
_RECORD = re.compile(r"/commits/[^/]+\.json$")


class Cleanup:
    """A day whose driver is killed, one whose commit is killed and never tried again, one whose publisher is killed."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.folder = scene.folder / "per-airline"
        self.days: list[datetime] = []
        self.left: dict[str, int] = {}

    def fill(self) -> int:
        """Three days of real flights, beside transactions that were aborted, and one that its dead producer left open."""
        batches: list[Batch] = []
        for number in (DRIVER_DAY, COMMIT_DAY, STRUCK_DAY):
            records = flights(number, number, partitions=PARTITIONS)
            if number == COMMIT_DAY:
                batches.append(Batch(end="open", records=records[:SOME]))
            else:
                batches.append(Batch(end="aborted", records=records[:SOME]))
            batches.append(Batch(end="committed", records=records))
        create_topic(self.scene.bootstrap, TOPIC, partitions=PARTITIONS)
        return produce(self.scene.bootstrap, TOPIC, batches, sent=self.scene.sent)

    def plain(self) -> None:
        """Two days, each with a kill -9 before its commit; then gc."""
        self._kill_driver()
        self._kill_commit()
        self._collect()

    def struck(self) -> Blow:
        """The third day; then gc."""
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
            lambda: cleanup.judge(
                self._lake(),
                self.folder,
                self.scene.sent,
                days=self.days,
                left_before=self.left,
            )
        )

    # ------------------------------------------------------------ what goes wrong

    def _start(self, number: int) -> str:
        self.days.append(day(number))
        return self.scene.start(day(number), day(number + 1))

    def _kill_driver(self) -> None:
        """The driver dies between its upload and its report; its retry stages anew. What it landed and wrote stays."""
        gate = Gate(self.scene.variables["AWS_ENDPOINT_URL_S3"])
        gate.set(Trap(path=_REPORT, when="before"))
        with self.scene.gate(gate):
            run_id = self._start(DRIVER_DAY)
            kill = self.scene.killed(gate)
            self.scene.say(f"killed driver {kill.pid} between upload and report")
            self.scene.green(run_id)
        self.scene.must(self.scene.tries(run_id, STAGE) > 1, "stage was not tried again")
        below = part(day(DRIVER_DAY))
        keys = [k for k in self._lake().listed() if f"/{below}/" in k]
        attempts = {k.split("/")[5] for k in keys if "/data/" in k}
        landed = sum(k.startswith("scratch/") for k in keys)
        self.left["staged files of a lost attempt"] = len(attempts) - 1
        self.left["landed scratch files"] = landed

    def _kill_commit(self) -> None:
        """The commit dies between `prepare` and the swap, and is given up; the job is changed, so another plan comes."""
        gate = Gate(self.scene.variables["AWS_ENDPOINT_URL_S3"])
        gate.set(Trap(path=_RECORD, when="before"))
        with self.scene.gate(gate):
            run_id = self._start(COMMIT_DAY)
            kill = self.scene.killed(gate)
            # A retry that is quicker than the click meets the same end.
            gate.set(Trap(path=_RECORD, when="before"))
            self.scene.api.mark_task(self.scene.name, run_id, COMMIT, "failed")
            self.scene.api.wait_for_run(self.scene.name, run_id, deadline_s=RUN_S)
        left = [p.name for p in (self.folder / ".tallystick").glob("*.prepared")]
        self.left["prepared files of a plan that lost"] = len(left)
        self.scene.say(
            f"killed commit {kill.pid} before its swap: {len(left)} prepared file is left"
        )
        self.scene.change_job("VERSION = 1", "VERSION = 2")
        self.scene.clear(run_id)

    def _collect(self) -> None:
        """Trigger gc, with no grace for readers of old versions."""
        before = len(self._lake().listed())
        api = self.scene.api
        api.wait_for_dag(COLLECTOR, deadline_s=RUN_S)
        api.set_paused(COLLECTOR, paused=False)
        run_id = str(api.trigger(COLLECTOR)["dag_run_id"])
        self.scene.green(run_id, dag=COLLECTOR)
        self.scene.say(f"gc: {before} objects before, {len(self._lake().listed())} after")

    def _lake(self) -> Lake:
        variables = self.scene.variables
        bucket, _, prefix = self.scene.lake.removeprefix("s3://").partition("/")
        return Lake(
            endpoint_url=variables["AWS_ENDPOINT_URL_S3"],
            bucket=bucket,
            prefix=prefix,
            access_key_id=variables["AWS_ACCESS_KEY_ID"],
            secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
            region=variables["AWS_REGION"],
        )
