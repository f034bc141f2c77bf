"""Runs the contenders in a random order, measures each step, and checks every result."""

from __future__ import annotations

import random
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.whole_job.check import TableCheck, check_tables
from bench.whole_job.contender import (
    BenchJob,
    BenchPlace,
    BenchStep,
    Case,
    Contender,
    step_kind,
)
from bench.whole_job.measured import run_measured
from bench.whole_job.records import FROM_MS, HOUR_MS, FilledTopic
from bench.whole_job.servers import BenchServers
from bench.whole_job.speed import FIELD, work_s
from tallystick.errors import TallystickError

STEP_S = 1800.0
_TAIL = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchTurn:
    """One run: who does what, in which round."""

    round: int
    size: str
    case: Case
    contender: Contender


def turns_of(
    contenders: Sequence[Contender],
    cases: Sequence[Case],
    rounds: Mapping[str, int],
    seed: int,
) -> list[BenchTurn]:
    """Return all runs: in each round, every contender does every case and size once, in an order that the seed gives.

    `rounds` is the number of rounds by size.
    """
    chance = random.Random(seed)
    turns: list[BenchTurn] = []
    for number in range(1, max(rounds.values(), default=0) + 1):
        here = [
            BenchTurn(round=number, size=size, case=case, contender=contender)
            for size, count in rounds.items()
            if number <= count
            for case in cases
            for contender in contenders
            if case in contender.cases
        ]
        chance.shuffle(here)
        turns += here
    return turns


def job_of(topic: FilledTopic, case: Case) -> BenchJob:
    """Return the job of a topic."""
    return BenchJob(
        topic=topic.topic,
        ends=topic.ends,
        from_ms=FROM_MS,
        to_ms=FROM_MS + topic.hours * HOUR_MS,
        records=sum(topic.ends),
        broken=topic.broken,
        case=case,
    )


class BenchRunner:
    """Runs turns with the same servers and topics, each in a place of its own, which is deleted afterwards."""

    def __init__(
        self, servers: BenchServers, topics: Mapping[str, FilledTopic], folder: Path, *, keep: bool
    ) -> None:
        self._servers, self._topics, self._folder, self._keep = servers, topics, folder, keep
        self._number = 0

    def run(self, turn: BenchTurn) -> dict[str, Any]:
        """Run a turn; return its figures and the result of its check as JSON. Safe to repeat: each run has its place."""
        self._number += 1
        topic = self._topics[turn.size]
        job = job_of(topic, turn.case)
        name = f"{self._number:03}-{turn.contender.name}-{turn.case}-{turn.size}"
        place = BenchPlace(folder=self._folder / "runs" / name, prefix=f"runs/{name}")
        place.output.mkdir(parents=True)
        self._servers.take_counts()
        before_s = work_s()
        steps, problems = self._steps(turn.contender, job, place)
        speed_s = (before_s + work_s()) / 2
        counts = self._servers.take_counts()
        checks: list[TableCheck] = []
        if not problems:
            checks, problems = self._check(turn.contender, job, place, topic)
        stored = self._servers.stored(place.prefix)
        files = [path for path in place.output.rglob("*") if path.is_file()]
        figures = {
            "round": turn.round,
            "turn": self._number,
            "size": turn.size,
            "case": turn.case,
            "contender": turn.contender.name,
            "steps": steps,
            FIELD: speed_s,
            "s3": counts,
            "rest_bytes": sum(stored.values()) + sum(path.stat().st_size for path in files),
            "rest_files": len(stored) + len(files),
            "tables": [asdict(check) for check in checks],
            "ok": not problems,
            "problems": problems,
        }
        if not self._keep and not problems:
            shutil.rmtree(place.folder)
            self._servers.clear(place.prefix)
        return figures

    def _steps(
        self, contender: Contender, job: BenchJob, place: BenchPlace
    ) -> tuple[list[dict[str, Any]], list[str]]:
        done: list[dict[str, Any]] = []
        try:
            for step in contender.steps(job, place):
                output = place.folder / f"{step.name}.log"
                found = self.measure(step, output)
                done.append({"name": step.name, "main": step.main, **found})
                if code := found["exit_code"]:
                    return done, [_failed(step, code, output)]
        except (TallystickError, OSError, KeyError, ValueError) as error:
            return done, [f"{type(error).__name__}: {error}"]
        return done, []

    def measure(
        self, step: BenchStep, output: Path, *, look: Callable[[list[int]], None] | None = None
    ) -> dict[str, Any]:
        """Run a step and return its figures as JSON; see `run_measured`."""
        cost = run_measured(
            step.argv,
            name=f"{self._number}-{step.name}",
            env=step.env,
            output=output,
            timeout_s=STEP_S,
            cwd=step.cwd,
            servers=self._servers.group,
            look=look,
        )
        return asdict(cost)

    def _check(
        self, contender: Contender, job: BenchJob, place: BenchPlace, topic: FilledTopic
    ) -> tuple[list[TableCheck], list[str]]:
        scratch = place.folder / "fetched"
        scratch.mkdir()
        bucket = f"s3://{self._servers.endpoints.bucket}/"

        def fetch(file: str) -> Path:
            if not file.startswith(bucket):
                return Path(file)
            path = scratch / f"{len(list(scratch.iterdir())):05}.parquet"
            self._servers.fetch(file.removeprefix(bucket), path)
            return path

        try:
            results = contender.results(job, place)
            checks = check_tables(
                results, job.tables, topic.expected, fetch, canonical=topic.canonical
            )
        except Exception as error:  # noqa: BLE001  (of any reader: the run has no result then)
            return [], [f"the tables cannot be read: {type(error).__name__}: {error}"]
        finally:
            shutil.rmtree(scratch)
        return checks, [f"{one.table}: {why}" for one in checks for why in one.problems]


def warm_up(runner: BenchRunner, contenders: Sequence[Contender]) -> None:
    """Run each contender once on the small topic, without a figure: files and caches are then as in later runs.

    Safe to repeat: each run has a place of its own. Raises SystemExit if a contender fails.
    """
    for contender in contenders:
        case: Case = "three" if "three" in contender.cases else "one"
        note(f"warm-up: {contender.name}")
        turn = BenchTurn(round=0, size="small", case=case, contender=contender)
        if problems := runner.run(turn)["problems"]:
            raise SystemExit(f"{contender.name}: " + "\n".join(problems))


def finished_runs(runner: BenchRunner, turns: Sequence[BenchTurn]) -> list[dict[str, Any]]:
    """Run the turns in order; after Ctrl-C or SIGTERM, return those that have ended."""
    runs: list[dict[str, Any]] = []
    try:
        for turn in turns:
            runs.append(runner.run(turn))
            note(shown(turn, runs[-1]))
    except (KeyboardInterrupt, SystemExit):
        note(f"interrupted: the bundle has {len(runs)} of {len(turns)} runs")
    return runs


def shown(turn: BenchTurn, figures: Mapping[str, Any]) -> str:
    """Return one line about a run for the progress."""
    steps = figures["steps"]
    cpu, wall = (sum(step[name] for step in steps) for name in ("cpu_s", "wall_s"))
    foreign = sum(step["foreign_s"] for step in steps)
    result = "rows equal" if figures["ok"] else f"FAILED: {figures['problems'][0][:200]}"
    kinds: dict[str, float] = {}
    for step in steps:
        kind = step_kind(step["name"])
        kinds[kind] = kinds.get(kind, 0.0) + step["cpu_s"]
    parts = ", ".join(f"{kind} {spent:.1f}" for kind, spent in kinds.items())
    return (
        f"round {turn.round} {turn.case:5} {turn.size:5} {turn.contender.name:18} "
        f"{cpu:6.1f} CPU-s ({parts}) {wall:6.1f} s, foreign {foreign:.1f} CPU-s, {result}"
    )


def small_job(topic: FilledTopic) -> BenchJob:
    """Return the job with which contenders make their archives."""
    return replace(job_of(topic, "one"), case="three")


def note(line: str) -> None:
    """Print a line of progress."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def _failed(step: BenchStep, code: int, output: Path) -> str:
    lines = output.read_text(errors="replace").splitlines()[-_TAIL:]
    return f"{step.name} ended with {code}: " + " | ".join(lines)[-1500:]
