"""The whole job on other records than clicks: nested documents, real flights, and Avro with a schema registry.

    python -m bench.whole_job.formats [--sets documents,flights,avro] [--rounds 3] [--records-max 500000]

Exits with 0 only if every run took place, and every table had exactly the expected rows. See bench/README.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.whole_job.bundle import sealed
from bench.whole_job.contender import Contender
from bench.whole_job.formats.by_name import CONTENDERS, contenders_of
from bench.whole_job.formats.record_sets import SETS, RecordSet
from bench.whole_job.formats.report import CASE, WHAT, text_report
from bench.whole_job.machine import describe_machine, describe_versions
from bench.whole_job.places import PARTITIONS, even
from bench.whole_job.preparing import (
    described_contenders,
    described_topics,
    prepare,
    run_benchmark,
    running_servers,
)
from bench.whole_job.records import BROKEN_SHARE, ExpectedEvents, FilledTopic, fill_topic
from bench.whole_job.rounds import BenchRunner, finished_runs, note, turns_of, warm_up
from bench.whole_job.servers import BenchServers

RECORDS = {"small": 20_000, "full": 500_000}


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
    parser.add_argument("--sets", default=",".join(SETS), help=", ".join(SETS))
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help=", ".join(CONTENDERS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records-max", type=int, help="leave out the size with more records")
    parser.add_argument("--seed", type=int, default=1, help="of the records and of the order")
    parser.add_argument("--keep", action="store_true", help="keep every file of every run")
    parser.add_argument("--folder", type=Path, help="where the servers and the runs write")
    parser.add_argument("--out", type=Path, default=Path("build/bench/formats.json"))
    arguments = parser.parse_args()
    for option, known in (("sets", SETS), ("contenders", CONTENDERS)):
        chosen = getattr(arguments, option).split(",")
        setattr(arguments, option, chosen)
        if unknown := sorted(set(chosen) - set(known)):
            parser.error(f"--{option}: expected some of {', '.join(known)}, found {unknown[0]}")
    smallest = min(RECORDS.values())
    if arguments.records_max is not None and arguments.records_max < smallest:
        parser.error(f"--records-max: expected {smallest} or more, found {arguments.records_max}")
    return arguments


def _measured(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    began = datetime.now(UTC)
    sizes = _sizes(arguments.records_max)
    runs: list[dict[str, Any]] = []
    sets: dict[str, Any] = {}
    complete = True
    for name in arguments.sets:
        one, own = SETS[name], folder / name
        # New servers for each set: the topics of the set before need no room on the disk then.
        with running_servers(own / "servers", with_registry=one.schema is not None) as servers:
            found, sets[name] = _measured_set(arguments, one, sizes, servers, own)
        if not arguments.keep:
            shutil.rmtree(own)
        runs += found
        complete = sets[name]["complete"]
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
                "records": sizes,
                "partitions": PARTITIONS,
                "broken_share": BROKEN_SHARE,
                "cores": os.cpu_count() or 1,
            },
            "sets": sets,
            "complete": complete,
            "runs": runs,
        }
    )


def _sizes(records_max: int | None) -> dict[str, int]:
    return {
        size: records
        for size, records in RECORDS.items()
        if records_max is None or records <= records_max
    }


def _measured_set(
    arguments: argparse.Namespace,
    one: RecordSet,
    sizes: Mapping[str, int],
    servers: BenchServers,
    folder: Path,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    contenders = contenders_of(arguments.contenders, one)
    topics = _fill(servers, arguments.seed, one, sizes, folder)
    prepare(contenders, servers, folder, topics["small"])
    runner = BenchRunner(servers, topics, folder, keep=arguments.keep)
    warm_up(runner, contenders)
    rounds = dict.fromkeys(sizes, arguments.rounds)
    turns = turns_of(contenders, (CASE,), rounds, arguments.seed)
    note(f"{one.name}: {len(turns)} runs in the order of seed {arguments.seed}")
    found = [{"set": one.name, **run} for run in finished_runs(runner, turns)]
    return found, _described(one, topics, contenders) | {"complete": len(found) == len(turns)}


def _described(
    one: RecordSet, topics: Mapping[str, FilledTopic], contenders: Sequence[Contender]
) -> dict[str, Any]:
    return {
        "what": one.what,
        "records": described_topics(topics),
        "contenders": described_contenders(contenders),
    }


def _fill(
    servers: BenchServers, seed: int, one: RecordSet, sizes: Mapping[str, int], folder: Path
) -> dict[str, FilledTopic]:
    topics = {}
    for size, records in sizes.items():
        note(f"producing {records:,} records of {one.name}")
        topic, places = f"{one.name}-{size}", even()
        schema_id = 0 if one.schema is None else servers.register(topic, one.schema)
        topics[size] = fill_topic(
            servers.endpoints.bootstrap,
            topic,
            one.batches(seed, records, places=places, schema_id=schema_id),
            ExpectedEvents(folder / "expected" / size),
            ends=places.ends(records),
            canonical=one.canonical,
        )
    return topics


if __name__ == "__main__":
    sys.exit(main())
