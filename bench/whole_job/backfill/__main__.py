"""A backfill of hourly intervals, from a topic in Kafka to checked tables, by tallystick and by plain Spark.

    python -m bench.whole_job.backfill [--intervals 48] [--records 20000] [--rounds 1] [--contenders a,b]

Exits with 0 only if every run took place, and its table had exactly the rows of all intervals. See bench/README.md.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.whole_job.backfill.by_name import contenders_of
from bench.whole_job.backfill.report import CASE, SIZE, WHAT, text_report
from bench.whole_job.bundle import sealed
from bench.whole_job.contender import Contender
from bench.whole_job.machine import describe_machine, describe_versions
from bench.whole_job.places import PARTITIONS
from bench.whole_job.preparing import (
    described_contenders,
    described_topics,
    prepare,
    run_benchmark,
    running_servers,
)
from bench.whole_job.records import BROKEN_SHARE, FilledTopic, fill
from bench.whole_job.rounds import BenchRunner, finished_runs, note, turns_of, warm_up
from bench.whole_job.servers import BenchServers

WARM_UP_INTERVALS = 2


def main() -> int:
    """Run the benchmark, write the bundle, print the tables; return the exit code."""
    arguments = _arguments()
    contenders = contenders_of(arguments.contenders)
    return run_benchmark(
        lambda folder: _measured(arguments, contenders, folder),
        text_report,
        out=arguments.out,
        folder=arguments.folder,
        keep=arguments.keep,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--intervals", type=int, default=48, help="hours of the backfill")
    parser.add_argument("--records", type=int, default=20_000, help="of each interval")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--contenders", help="names; all if not given")
    parser.add_argument("--seed", type=int, default=1, help="of the records and of the order")
    parser.add_argument("--keep", action="store_true", help="keep every file of every run")
    parser.add_argument("--folder", type=Path, help="where the servers and the runs write")
    parser.add_argument("--out", type=Path, default=Path("build/bench/backfill.json"))
    arguments = parser.parse_args()
    if arguments.intervals < 1 or arguments.records < PARTITIONS:
        parser.error(f"expected at least one interval of {PARTITIONS} records")
    return arguments


def _measured(
    arguments: argparse.Namespace, contenders: Sequence[Contender], folder: Path
) -> dict[str, Any]:
    began = datetime.now(UTC)
    with running_servers(folder / "servers") as servers:
        topics = _fill(servers, arguments, folder)
        prepare(contenders, servers, folder, topics["small"])
        runner = BenchRunner(servers, topics, folder, keep=arguments.keep)
        warm_up(runner, contenders)
        turns = turns_of(contenders, (CASE,), {SIZE: arguments.rounds}, arguments.seed)
        note(f"{len(turns)} runs in the order of seed {arguments.seed}")
        runs = finished_runs(runner, turns)
    return sealed(
        {
            "what": WHAT,
            "date": f"{began:%Y-%m-%d}",
            "machine": describe_machine(),
            "versions": describe_versions(),
            "settings": {
                "seed": arguments.seed,
                "rounds": arguments.rounds,
                "intervals": arguments.intervals,
                "interval_records": arguments.records,
                "partitions": PARTITIONS,
                "broken_share": BROKEN_SHARE,
                "cores": os.cpu_count() or 1,
            },
            "records": described_topics(topics),
            "contenders": described_contenders(contenders),
            "complete": len(runs) == len(turns),
            "runs": runs,
        }
    )


def _fill(
    servers: BenchServers, arguments: argparse.Namespace, folder: Path
) -> dict[str, FilledTopic]:
    topics = {}
    for size, hours in (("small", WARM_UP_INTERVALS), (SIZE, arguments.intervals)):
        note(f"producing {hours} hours of {arguments.records:,} records")
        topics[size] = fill(
            servers.endpoints.bootstrap,
            f"clicks-{size}",
            seed=arguments.seed,
            records=hours * arguments.records,
            expected=folder / "expected" / size,
            hours=hours,
        )
    return topics


if __name__ == "__main__":
    sys.exit(main())
