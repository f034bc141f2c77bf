"""The tasks of a backfill by tallystick as processes: what Airflow's operators call for each run, without Airflow.

    python -m bench.whole_job.backfill.tallystick_tasks plan|stage|commit FOLDER FIRST END

Does the task of the intervals FIRST to END, END not included, one after the other. FOLDER has `backfill.json`, the job
file, and a folder per interval with its order. There `plan` leaves `plans.json`, `stage` leaves `result.json`, and
`commit` reads that. `stage` starts a driver for an interval that no earlier driver has staged, as `StageOperator` does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.whole_job.contenders.tallystick_tasks import (
    ReplayOrder,
    commit_staged,
    plan_interval,
)
from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.resolve import resolve
from tallystick.format.interval import Request
from tallystick.format.plan import Plan
from tallystick.lake import Lake
from tallystick.runtime import system_runtime
from tallystick.store.open import open_store

JOB, BACKFILL, RESULT = "job.py", "backfill.json", "result.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillOrder:
    """What all intervals share: the lake, the command of a driver up to its job file, and its last arguments.

    `together`: how many intervals one driver stages at most, `replay_dag(stage_together=)`.
    """

    warehouse: str
    program: Sequence[str]
    extra: Sequence[str]
    together: int

    def write(self, folder: Path) -> None:
        """Write the order. Safe to repeat: it is replaced."""
        (folder / BACKFILL).write_text(json.dumps(asdict(self)))


def main(task: str, folder: Path, numbers: Sequence[int]) -> None:
    """Run one kind of task on some intervals."""
    order = BackfillOrder(**json.loads((folder / BACKFILL).read_text()))
    lake = Lake(open_store(order.warehouse), system_runtime())
    if task == "plan":
        _plan(lake, folder, numbers)
    elif task == "stage":
        stage_intervals(lake, order, folder, numbers)
    else:
        commit_staged(lake, [folder / f"{number:03}" for number in numbers])


def request_of(number: int) -> Request:
    """Return the request of the run that has an interval."""
    return Request(dag="clicks", run=f"backfill__{number:03}", clear=0)


def _plan(lake: Lake, folder: Path, numbers: Sequence[int]) -> None:
    from tallystick.kafka.planning import LogPlanner

    source = (folder / JOB).read_bytes()
    for number in numbers:
        own = folder / f"{number:03}"
        order = ReplayOrder(**json.loads((own / "order.json").read_text()))
        # Each run of Airflow has a planner of its own.
        with LogPlanner(resolve(KafkaSettings, "default", environ=os.environ)) as log:
            plan_interval(lake, log, order, request_of(number), source, own)


def stage_intervals(lake: Lake, order: BackfillOrder, folder: Path, numbers: Sequence[int]) -> None:
    """Stage the intervals in order: by the report of an earlier driver, or else by a driver that also stages others.

    Not safe to repeat: the ids of the attempts are fixed.
    """
    from tallystick.operations.stage_together import StageTogether

    for number in numbers:
        own = folder / f"{number:03}"
        plans = _plans(lake, own)
        attempt = f"bench-{number:03}"
        together = StageTogether(
            lake=lake,
            request=request_of(number),
            attempt=attempt,
            fresh=True,
            # The tasks run one after the other: the driver of an earlier run has ended.
            is_running=lambda _: False,
            note=_note,
        )
        reports = together.reports(plans)
        if len(reports) == len(plans):
            staged = [{"plan": plan, "report": report} for plan, report in reports.items()]
            (own / RESULT).write_text(json.dumps(staged))
        else:
            _start_driver(lake, order, folder / JOB, own, plans, attempt)


def _plans(lake: Lake, own: Path) -> list[Plan]:
    """Return the plans of an interval that are still to be staged."""
    from tallystick.operations.stage import to_stage

    refs = json.loads((own / "plans.json").read_text())
    keys = [ref.removeprefix(f"{lake.store.uri}/").partition("@")[0] for ref in refs]
    first = lake.plan(keys[0])
    assert first is not None
    return list(to_stage(lake, keys, fingerprint=first.fingerprint).plans)


def _start_driver(
    lake: Lake, order: BackfillOrder, job: Path, own: Path, plans: Sequence[Plan], attempt: str
) -> None:
    """Claim plans of other runs and start a driver for all. Raises CalledProcessError if it fails."""
    from tallystick.operations.stage_together import OtherPlans

    most = order.together - len(plans)
    others = OtherPlans(lake=lake, own=plans, attempt=attempt, plans_max=most)
    claimed = list(others.claim_more())
    _note(f"{attempt}: a driver for {len(plans)} plan(s) and {len(claimed)} of other runs")
    words = [*order.program, str(job), *_named("--plan", lake, plans), "--attempt", attempt]
    words += [*_named("--other", lake, claimed), "--others-max", str(most), *order.extra]
    subprocess.run(
        words, env=os.environ | {"TALLYSTICK_RESULT_FILE": str(own / RESULT)}, check=True
    )


def _named(option: str, lake: Lake, plans: Sequence[Plan]) -> list[str]:
    words: list[str] = []
    for plan in plans:
        words += [option, f"{lake.where(plan.key)}@{plan.sha256}"]
    return words


def _note(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), range(int(sys.argv[3]), int(sys.argv[4])))
