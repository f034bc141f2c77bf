"""The nemesis with outputs: while they are away a backlog grows; then it is published while another day's run commits.

Many small folders instead of many days, for a day costs a Spark job: each folder is pending each day, and each
publication takes two swaps of the root that the other day's commit swaps too.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from chaos.moments import REPORT
from chaos.records import produce_days, row_of
from chaos.rounds import Missed, Nemesis, Round
from chaos.victims import chains, kill
from chaos.workspace import Workspace

OUTPUTS = 12
PUBLISH = "publish"


def folders(r: Round) -> Path:
    """Where the round's outputs are: one folder each."""
    return Path(r.workspace.base) / f"{r.lake.name}.out"


def _inject(r: Round) -> None:
    killed = r.rng.random() < 0.5
    root = folders(r)
    # No folder can be made below a file: each output is refused before anything of it is begun.
    root.write_text("away")
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
            raise Missed("the other day committed before the backlog was begun")
        r.note(f"{_files(root)} of {pending} are published; the other day may commit")
        trap.released.set()
        r.until(
            lambda: _files(root) >= pending or _committed(r), "the other day's commit", poll_s=0.2
        )
        left = pending - _files(root)
        if left <= 0:
            raise Missed("the backlog was published before the other day committed")
        r.note(f"the other day is committed, {left} publications are still pending")
    if killed:
        for chain in chains(r.workspace.scheduler_pid):
            if chain.task is not None:
                r.note(f"kill -9 of task {chain.task.pid}")
                kill(chain.task)


def _refused(r: Round) -> bool:
    """Whether every run has come to its end, and outputs refused what was committed."""
    states = [t["state"] for t in r.tries() if t["task_id"] == PUBLISH]
    ended = [state for state in states if state in ("success", "failed")]
    return len(ended) >= r.runs_expected and "failed" in ended


def _publish_again(r: Round) -> None:
    """Clear the task of one run: it publishes what all of them owe."""
    failed = next(t for t in r.tries() if t["task_id"] == PUBLISH and t["state"] == "failed")
    run_id = str(failed["dag_run_id"])
    r.workspace.api.clear_tasks(r.lake.name, run_id, [PUBLISH])
    r.note(f"Clear of {PUBLISH} of {run_id}")


def _committed(r: Round) -> bool:
    """Whether every run's commit has ended well, the last day's too."""
    done = sum(t["task_id"] == "commit" and t["state"] == "success" for t in r.tries())
    return done >= r.runs_expected


def _files(root: Path) -> int:
    return sum(1 for _ in root.glob("*/*.jsonl"))


def _problem(r: Round) -> str | None:
    """What the folders hold that was not sent, or lack, or hold twice; read as any program would read them."""
    values = r.log.values()
    sent = Counter(
        (one.partition, one.offset)
        for one in r.log.read()
        if one.outcome == "ok" and row_of(values.get(one.sha256)) is not None
    )
    for number in range(OUTPUTS):
        folder = folders(r) / f"f{number:02d}"
        held = Counter(
            (row["_kafka_partition"], row["_offset"])
            for path in folder.glob("*.jsonl")
            for row in map(json.loads, path.read_text().splitlines())
        )
        if held != sent:
            return (
                f"{folder.name} holds {held.total()} rows of {sent.total()} sent: "
                f"{(held - sent).total()} too many, {(sent - held).total()} are missing"
            )
    r.note(f"{OUTPUTS} folders hold {sent.total()} rows each, each once")
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
    ),
)
