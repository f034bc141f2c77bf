"""tallystick as a backfill: each interval is planned and committed by itself, and staged alone or with others."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bench.whole_job.backfill.intervals import BackfillInterval, intervals_of
from bench.whole_job.backfill.tallystick_tasks import JOB, BackfillOrder
from bench.whole_job.contender import (
    BenchJob,
    BenchPlace,
    BenchStep,
    BenchWorkspace,
    Case,
    ResultTable,
)
from bench.whole_job.contenders.tallystick import REPO, Tallystick
from bench.whole_job.contenders.tallystick_tasks import JOBS, ReplayOrder

DEFAULT_TOGETHER = 12
PROCESSES = {
    "one": "one process plans all intervals, another one commits them in order: what Airflow does per run is not in the "
    "figures, the start of a process included",
    "each": "a process for each plan and each commit, as Airflow's tasks are; Airflow itself is not in the figures",
}


@dataclass(slots=True)
class BackfillTallystick:
    """The contender with or without Spark, and with one of the ways to start processes.

    `together`: how many intervals a driver stages at most; None: no limit but that of the product, which is 500,000
    offsets of other runs. If it is 1, each interval is planned, staged and committed before the next one.
    """

    variant: Literal["best", "without-spark"]
    together: int | None = None
    processes: Literal["one", "each"] = "one"
    _tallystick: Tallystick = field(init=False)

    def __post_init__(self) -> None:
        self._tallystick = Tallystick(self.variant)

    @property
    def name(self) -> str:
        """Its name."""
        words = ["tallystick"]
        if self.together == 1:
            words.append("each")
        elif self.together is not None:
            words.append(f"by-{self.together}")
        if self.processes == "each" and self.together != 1:
            words.append("tasks")
        if self.variant == "without-spark":
            words.append(self.variant)
        return "-".join(words)

    @property
    def what(self) -> str:
        """What it is."""
        alone = "one interval after the other by plan, stage and commit"
        return "tallystick: exactly-once replay into Iceberg tables on S3, " + (
            alone if self.together == 1 else "staged together, each interval committed by itself"
        )

    @property
    def settings(self) -> Mapping[str, str]:
        """Its settings in words."""
        together = "the number of intervals" if self.together is None else str(self.together)
        return {
            **self._tallystick.settings,
            "steps": PROCESSES[self.processes],
            "together": f"stage_together = {together}; at most 500,000 offsets of other runs in a driver; one driver at "
            "a time",
        }

    @property
    def cases(self) -> frozenset[Case]:
        """One table."""
        return frozenset({"one"})

    def versions(self) -> Mapping[str, str]:
        """Return its version."""
        return self._tallystick.versions()

    def prepare(self, workspace: BenchWorkspace) -> None:
        """Prepare tallystick. Safe to repeat: what exists is kept."""
        self._tallystick.prepare(workspace)

    def steps(self, job: BenchJob, place: BenchPlace) -> Iterator[BenchStep]:
        """Yield the processes. Safe to repeat: each place is a lake of its own."""
        intervals = intervals_of(job)
        self._write(job, place, intervals)
        if self.together == 1:
            for interval in intervals:
                yield self._task("plan", place, [interval])
                yield self._alone(place, interval)
                yield self._task("commit", place, [interval])
            return
        yield from self._tasks("plan", place, intervals)
        yield self._task("stage", place, intervals)
        yield from self._tasks("commit", place, intervals)

    def results(self, job: BenchJob, place: BenchPlace) -> Sequence[ResultTable]:
        """Return the data files that PyIceberg finds in the tables of root.json."""
        return self._tallystick.results(job, place)

    def _write(
        self, job: BenchJob, place: BenchPlace, intervals: Sequence[BackfillInterval]
    ) -> None:
        env = self._tallystick.environment(place)
        order = BackfillOrder(
            warehouse=self._tallystick.warehouse(place),
            program=[str(word) for word in self._tallystick.program(env)],
            extra=["--without-spark"] if self.variant == "without-spark" else [],
            together=len(intervals) if self.together is None else self.together,
        )
        order.write(place.folder)
        (place.folder / JOB).write_text(JOBS[job.case])
        for interval in intervals:
            own = place.folder / interval.name
            own.mkdir()
            ReplayOrder(
                case=job.case,
                topic=job.topic,
                warehouse=order.warehouse,
                from_ms=interval.from_ms,
                to_ms=interval.to_ms,
            ).write(own)

    def _tasks(
        self, name: str, place: BenchPlace, intervals: Sequence[BackfillInterval]
    ) -> Iterator[BenchStep]:
        groups = [intervals] if self.processes == "one" else [[one] for one in intervals]
        for group in groups:
            yield self._task(name, place, group)

    def _task(
        self, name: str, place: BenchPlace, intervals: Sequence[BackfillInterval]
    ) -> BenchStep:
        module = "bench.whole_job.backfill.tallystick_tasks"
        first, end = intervals[0].number, intervals[-1].number + 1
        argv: list[str | Path] = [sys.executable, "-m", module, name, place.folder]
        return BenchStep(
            name=f"{name}-{intervals[0].name}" if len(intervals) == 1 else name,
            argv=[*argv, str(first), str(end)],
            env=self._tallystick.environment(place),
            main=name == "stage",
            cwd=REPO,
        )

    def _alone(self, place: BenchPlace, interval: BackfillInterval) -> BenchStep:
        own = BenchPlace(folder=place.folder / interval.name, prefix=place.prefix)
        plans = json.loads((own.folder / "plans.json").read_text())
        name = f"stage-{interval.name}"
        return self._tallystick.stage(plans, own, job=place.folder / JOB, name=name)
