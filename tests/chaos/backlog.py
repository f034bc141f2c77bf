"""The nemesis with outputs: while they fail a backlog grows; it is published while the run of another day commits.

It uses many small folders instead of many days, because a day costs a Spark job: each folder is pending for each day,
and each publication swaps twice the root that the commit of the other day swaps, too.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from chaos.errors import MissedError
from chaos.moments import REPORT
from chaos.records import produce_days, row_of
from chaos.rounds import Nemesis, Round
from chaos.victims import chains, kill
from chaos.workspace import Workspace

OUTPUTS = 12
PUBLISH = "publish"


def folders(r: Round) -> Path:
    """Return the folder of the round's outputs, which has a folder for each."""
    return Path(r.workspace.base) / f"{r.lake.name}.out"


def _inject(r: Round) -> None:
    killed = r.rng.random() < 0.5
    root = folders(r)
    # No folder can be created below a file: each output is refused before its publication begins.
    root.write_text("not a folder")
    r.begin()
    r.until(lambda: _refused(r), "a backlog", poll_s=0.5)
    pending = OUTPUTS * r.lake.days
    r.note(f"{pending} publications are pending")
    root.unlink()
    other = r.lake.days + 1
    produce_days(r.workspace.kafka, r.lake.name, days=[other], rng=r.rng, log=r.log)
    (report,) = (p for p in REPORT if p.when == "after")
    with r.workspace.tap.trap(report, r.lake.name, hold=True) as trap:
        r.trigger(other)
        r.until(trap.sprung.is_set, "another day's report", poll_s=0.2)
        _publish_again(r)
        r.until(lambda: _files(root) > 0, "a publication")
        if _committed(r):
            raise MissedError("the other day committed before the backlog was in progress")
        r.note(f"{_files(root)} of {pending} are published; the other day may commit")
        trap.released.set()
        r.until(
            lambda: _files(root) >= pending or _committed(r), "the other day's commit", poll_s=0.2
        )
        remaining = pending - _files(root)
        if remaining <= 0:
            raise MissedError("the backlog was published before the other day committed")
        r.note(f"the other day is committed, {remaining} publications are still pending")
    if killed:
        for chain in chains(r.workspace.scheduler_pid):
            if chain.task is not None:
                r.note(f"kill -9 of task {chain.task.pid}")
                kill(chain.task)


def _refused(r: Round) -> bool:
    """Return True if every run has ended, and outputs refused committed rows."""
    states = [t["state"] for t in r.tries() if t["task_id"] == PUBLISH]
    ended = [state for state in states if state in ("success", "failed")]
    return len(ended) >= r.runs_expected and "failed" in ended


def _publish_again(r: Round) -> None:
    """Clear the publishing task of one run: it publishes everything that is pending."""
    failed = next(t for t in r.tries() if t["task_id"] == PUBLISH and t["state"] == "failed")
    run_id = str(failed["dag_run_id"])
    r.workspace.api.clear_tasks(r.lake.name, run_id, [PUBLISH])
    r.note(f"Clear of {PUBLISH} of {run_id}")


def _committed(r: Round) -> bool:
    """Return True if the commit of every run has succeeded, also that of the last day."""
    succeeded = sum(t["task_id"] == "commit" and t["state"] == "success" for t in r.tries())
    return succeeded >= r.runs_expected


def _files(root: Path) -> int:
    return sum(1 for _ in root.glob("*/*.jsonl"))


def _problem(r: Round) -> str | None:
    """Return the rows that the folders have too many or too few, compared with the sent ones; None if they are equal."""
    values = r.log.values()
    sent = Counter(
        (record.partition, record.offset)
        for record in r.log.read()
        if record.outcome == "ok" and row_of(values.get(record.sha256)) is not None
    )
    for number in range(OUTPUTS):
        folder = folders(r) / f"f{number:02d}"
        published = Counter(
            (row["_kafka_partition"], row["_offset"])
            for path in folder.glob("*.jsonl")
            for row in map(json.loads, path.read_text().splitlines())
        )
        if published != sent:
            return (
                f"{folder.name}: expected {sent.total()} rows, found {published.total()}: "
                f"{(published - sent).total()} too many, {(sent - published).total()} are missing"
            )
    r.note(f"{OUTPUTS} folders have {sent.total()} rows each, each once")
    return None


def _with_outputs(_rng: random.Random, workspace: Workspace) -> dict[str, Any]:
    return {"outputs": OUTPUTS, "output_root": str(workspace.base)}


BACKLOG = (
    Nemesis(
        name="publisher-backlog",
        what="a backlog of outputs is published while a run commits",
        inject=_inject,
        lake=_with_outputs,
        problem=_problem,
        again=False,
    ),
)
