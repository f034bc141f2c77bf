"""How the cost of a run of tallystick grows, from a topic in a real broker to checked tables on an S3 server.

    python -m bench.whole_job.growth [--axis records,partitions,skew,tasks] [--rounds 3] [--records-max 50000000]

Exits with 0 only if every run took place, and every table had exactly the expected rows. See bench/README.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.whole_job.bundle import sealed
from bench.whole_job.growth.axes import AXES, GrowthAxis, GrowthSize
from bench.whole_job.growth.report import CASE, WHAT, text_report
from bench.whole_job.machine import describe_machine, describe_versions
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

WARM_UP_RECORDS = 20_000


def main() -> int:
    """Run the benchmark, write the bundle, print the tables; return the exit code."""
    arguments = _arguments()
    return run_benchmark(
        lambda folder: _measured(arguments, folder),
        text_report,
        out=arguments.out,
        folder=arguments.folder,
        keep=arguments.keep,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--axis", default=",".join(AXES), help=", ".join(AXES))
    parser.add_argument("--rounds", type=int, default=3, help="of sizes below 10,000,000 records")
    parser.add_argument("--records-max", type=int, help="leave out sizes with more records")
    parser.add_argument("--seed", type=int, default=1, help="of the records and of the order")
    parser.add_argument("--keep", action="store_true", help="keep every file of every run")
    parser.add_argument("--folder", type=Path, help="where the servers and the runs write")
    parser.add_argument("--out", type=Path, default=Path("build/bench/growth.json"))
    arguments = parser.parse_args()
    arguments.axis = arguments.axis.split(",")
    if unknown := sorted(set(arguments.axis) - set(AXES)):
        parser.error(f"--axis: expected some of {', '.join(AXES)}, found {', '.join(unknown)}")
    return arguments


def _measured(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    began = datetime.now(UTC)
    runs: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    complete = True
    for name in arguments.axis:
        if not (sizes := _sizes(AXES[name], arguments.records_max)):
            note(f"{name}: each size has more records than {arguments.records_max:,}")
            continue
        # New servers for each axis: the topics of the axis before need no room on the disk then.
        with running_servers(folder / name / "servers") as servers:
            found, described = _measured_axis(arguments, name, sizes, servers, folder / name)
        shutil.rmtree(folder / name)
        runs += found
        axes[name] = described
        complete = complete and described["complete"]
        if not complete:
            break
    return sealed(
        {
            "what": WHAT,
            "date": f"{began:%Y-%m-%d}",
            "machine": describe_machine(),
            "versions": describe_versions(),
            "settings": {
                "seed": arguments.seed,
                "rounds": arguments.rounds,
                "broken_share": BROKEN_SHARE,
                "cores": os.cpu_count() or 1,
            },
            "axes": axes,
            "complete": complete,
            "runs": runs,
        }
    )


def _sizes(axis: GrowthAxis, records_max: int | None) -> list[GrowthSize]:
    return [size for size in axis.sizes if records_max is None or size.records <= records_max]


def _measured_axis(
    arguments: argparse.Namespace,
    name: str,
    sizes: list[GrowthSize],
    servers: BenchServers,
    folder: Path,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    axis = AXES[name]
    topics = _fill(servers, arguments.seed, sizes, folder)
    prepare(axis.contenders, servers, folder, topics["warm-up"])
    warm_up(
        BenchRunner(servers, {"small": topics.pop("warm-up")}, folder, keep=False), axis.contenders
    )
    runner = BenchRunner(servers, topics, folder, keep=arguments.keep)
    rounds = {size.name: size.rounds(arguments.rounds) for size in sizes}
    turns = turns_of(axis.contenders, (CASE,), rounds, arguments.seed)
    note(f"{name}: {len(turns)} runs in the order of seed {arguments.seed}")
    found = [{"axis": name, **run} for run in finished_runs(runner, turns)]
    return found, _described(axis, sizes, topics) | {"complete": len(found) == len(turns)}


def _described(
    axis: GrowthAxis, sizes: list[GrowthSize], topics: dict[str, FilledTopic]
) -> dict[str, Any]:
    return {
        "what": axis.what,
        "sizes": [
            {"name": size.name, "records": size.records, "partitions": size.places.partitions}
            for size in sizes
        ],
        "records": described_topics(topics),
        "contenders": described_contenders(axis.contenders),
    }


def _fill(
    servers: BenchServers, seed: int, sizes: list[GrowthSize], folder: Path
) -> dict[str, FilledTopic]:
    topics = {}
    warm = GrowthSize(name="warm-up", records=WARM_UP_RECORDS)
    for number, size in enumerate([warm, *sizes]):
        note(f"producing {size.name}")
        topics[size.name] = fill(
            servers.endpoints.bootstrap,
            f"clicks-{number}",
            seed=seed,
            records=size.records,
            expected=folder / "expected" / str(number),
            places=size.places,
        )
    return topics


if __name__ == "__main__":
    sys.exit(main())
