"""The whole job, from a topic in Kafka to checked tables, by tallystick and by others, measured on one machine.

    python -m bench.whole_job [--records 2000000] [--rounds 5] [--tables one,three] [--contenders a,b] [--full]

Exits with 0 only if every run took place, and every table had exactly the expected rows. See bench/README.md.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.whole_job.bundle import sealed
from bench.whole_job.contender import Case, Contender
from bench.whole_job.contenders.by_name import contenders_of
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
from bench.whole_job.report import text_report
from bench.whole_job.rounds import BenchRunner, finished_runs, note, turns_of, warm_up
from bench.whole_job.servers import BenchServers

SMALL = 20_000
CASES: tuple[Case, ...] = ("one", "three")


def main() -> int:
    """Run the benchmark, write the bundle, print the table; return the exit code."""
    arguments = _arguments()
    contenders = contenders_of(arguments.contenders, full=arguments.full)
    cases = [case for case in CASES if case in arguments.tables.split(",")]
    return run_benchmark(
        lambda folder: _measured(arguments, contenders, cases, folder),
        text_report,
        out=arguments.out,
        folder=arguments.folder,
        keep=arguments.keep,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--records", type=int, help="of the large topic; 2,000,000 (full: 8,000,000)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="of the large topic")
    parser.add_argument(
        "--small-rounds", type=int, default=3, help="of the topic of 20,000 records"
    )
    parser.add_argument("--tables", default="one,three", help="cases: one, three")
    parser.add_argument("--contenders", help="names, or the beginnings of names; all if not given")
    parser.add_argument("--seed", type=int, default=1, help="of the records and of the order")
    parser.add_argument("--full", action="store_true", help="more records and contenders; hours")
    parser.add_argument("--keep", action="store_true", help="keep every file of every run")
    parser.add_argument("--folder", type=Path, help="where the servers and the runs write")
    parser.add_argument("--out", type=Path, default=Path("build/bench/whole_job.json"))
    arguments = parser.parse_args()
    arguments.records = arguments.records or (8_000_000 if arguments.full else 2_000_000)
    if arguments.records < SMALL:
        parser.error(f"--records: expected at least {SMALL:,}, found {arguments.records:,}")
    return arguments


def _measured(
    arguments: argparse.Namespace,
    contenders: Sequence[Contender],
    cases: Sequence[Case],
    folder: Path,
) -> dict[str, Any]:
    began = datetime.now(UTC)
    cores = os.cpu_count() or 1
    with running_servers(folder / "servers") as servers:
        topics = _fill(servers, arguments, folder)
        prepare(contenders, servers, folder, topics["small"])
        runner = BenchRunner(servers, topics, folder, keep=arguments.keep)
        warm_up(runner, contenders)
        rounds = {"full": arguments.rounds, "small": arguments.small_rounds}
        turns = turns_of(contenders, cases, rounds, arguments.seed)
        note(f"{len(turns)} runs in the order of seed {arguments.seed}")
        runs = finished_runs(runner, turns)
    return sealed(
        {
            "what": "bench/whole_job",
            "date": f"{began:%Y-%m-%d}",
            "machine": describe_machine(),
            "versions": describe_versions(),
            "settings": {
                "seed": arguments.seed,
                "rounds": arguments.rounds,
                "small_rounds": arguments.small_rounds,
                "records": {"full": arguments.records, "small": SMALL},
                "partitions": PARTITIONS,
                "broken_share": BROKEN_SHARE,
                "cores": cores,
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
    for size, records in (("small", SMALL), ("full", arguments.records)):
        note(f"producing {records:,} records")
        topics[size] = fill(
            servers.endpoints.bootstrap,
            f"clicks-{size}",
            seed=arguments.seed,
            records=records,
            expected=folder / "expected" / size,
        )
    mean = topics["full"].value_bytes / arguments.records
    note(f"{mean:.0f} bytes a record, {topics['full'].broken:,} broken")
    return topics


if __name__ == "__main__":
    sys.exit(main())
