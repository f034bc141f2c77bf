"""What a small run's CPU seconds are spent on: processes, loading of modules, and the rest.

    python -m bench.whole_job.start [--rounds 5] [--records 20000] [--contenders a,b]

Exits with 0 only if every run took place, and its table had exactly the expected rows. See bench/README.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.whole_job.bundle import sealed
from bench.whole_job.contender import BenchStep, Contender
from bench.whole_job.contenders.by_name import contenders_of
from bench.whole_job.machine import describe_machine, describe_versions
from bench.whole_job.preparing import (
    described_contenders,
    described_topics,
    prepare,
    run_benchmark,
    running_servers,
)
from bench.whole_job.records import FilledTopic, fill
from bench.whole_job.rounds import BenchRunner, finished_runs, note, turns_of, warm_up
from bench.whole_job.servers import BenchServers
from bench.whole_job.start.imports import PROFILE, import_seconds
from bench.whole_job.start.processes import ProcessTimes
from bench.whole_job.start.report import CASE, SIZE, WHAT, text_report

CONTENDERS = "tallystick-replay,tallystick-without-spark,tallystick-best,spark-best"


class StartRunner(BenchRunner):
    """Runs turns, and finds the CPU seconds of each process."""

    def measure(self, step: BenchStep, output: Path, **_: object) -> dict[str, Any]:
        """Run a step; return its figures with `parts`, the CPU seconds by process."""
        times = ProcessTimes()
        figures = super().measure(step, output, look=times.look)
        return {**figures, "parts": times.by_part()}


class ProfilingRunner(BenchRunner):
    """Runs turns with Python's profile of imports."""

    def measure(self, step: BenchStep, output: Path, **_: object) -> dict[str, Any]:
        """Run a step; return its figures with `imports`, the seconds by library."""
        figures = super().measure(replace(step, env={**step.env, **PROFILE}), output)
        return {**figures, "imports": import_seconds(output.read_text(errors="replace"))}


def main() -> int:
    """Run the benchmark, write the bundle, print the tables; return the exit code."""
    arguments = _arguments()
    contenders = contenders_of(arguments.contenders, full=False)
    return run_benchmark(
        lambda folder: _measured(arguments, contenders, folder),
        text_report,
        out=arguments.out,
        folder=arguments.folder,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--contenders", default=CONTENDERS, help="names, or beginnings of names")
    parser.add_argument("--seed", type=int, default=1, help="of the records and of the order")
    parser.add_argument("--folder", type=Path, help="where the servers and the runs write")
    parser.add_argument("--out", type=Path, default=Path("build/bench/start.json"))
    return parser.parse_args()


def _measured(
    arguments: argparse.Namespace, contenders: Sequence[Contender], folder: Path
) -> dict[str, Any]:
    began = datetime.now(UTC)
    with running_servers(folder / "servers") as servers:
        topic = _fill(servers, arguments, folder)
        prepare(contenders, servers, folder, topic)
        runner = StartRunner(servers, {SIZE: topic}, folder, keep=False)
        warm_up(runner, contenders)
        turns = turns_of(contenders, (CASE,), {SIZE: arguments.rounds}, arguments.seed)
        note(f"{len(turns)} runs in the order of seed {arguments.seed}")
        runs = finished_runs(runner, turns)
        # A run of its own, as the profile costs time.
        profiling = ProfilingRunner(servers, {SIZE: topic}, folder / "profiled", keep=False)
        imports = {
            turn.contender.name: {
                step["name"]: step["imports"] for step in profiling.run(turn)["steps"]
            }
            for turn in turns[: len(contenders)]
        }
    return sealed(
        {
            "what": WHAT,
            "date": f"{began:%Y-%m-%d}",
            "machine": describe_machine(),
            "versions": describe_versions(),
            "settings": {
                "seed": arguments.seed,
                "rounds": arguments.rounds,
                "records": {SIZE: arguments.records},
            },
            "records": described_topics({SIZE: topic}),
            "contenders": described_contenders(contenders),
            "imports": imports,
            "complete": len(runs) == len(turns),
            "runs": runs,
        }
    )


def _fill(servers: BenchServers, arguments: argparse.Namespace, folder: Path) -> FilledTopic:
    note(f"producing {arguments.records:,} records")
    return fill(
        servers.endpoints.bootstrap,
        "clicks",
        seed=arguments.seed,
        records=arguments.records,
        expected=folder / "expected",
    )


if __name__ == "__main__":
    sys.exit(main())
