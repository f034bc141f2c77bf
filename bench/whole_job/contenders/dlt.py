"""dlt: a pipeline that reads the topic by confluent-kafka, as dlt's own Kafka source does, into Parquet files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.whole_job.contender import (
    EVENTS,
    BenchJob,
    BenchPlace,
    BenchStep,
    BenchWorkspace,
    Case,
    ResultTable,
)
from bench.whole_job.contenders.prepared import own_python
from tallystick_devstack.process import base_environment

VERSIONS = {"dlt": "1.31.0", "confluent-kafka": "2.16.0", "orjson": "3.11.4", "pyarrow": "22.0.0"}
JOB = Path(__file__).with_name("dlt_job.py")
DATASET = "bench"
_EVENT = ("event_id", "event_type", "user_id", "session", "ts", "page", "referrer", "price", "qty")
COLUMNS: Mapping[str, str] = {
    **{name: name for name in _EVENT},
    "os": "device__os",
    "ver": "device__ver",
    "partition": '"partition"',
    "offset": '"offset"',
}
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "default": {
        "resource": "yields lists of 3,000 dicts, as dlt's Kafka source does; every other default of dlt",
        "files": "Parquet snappy, instead of typed JSON lines",
    },
    "best": {
        "resource": "yields Arrow tables of 50,000 rows, so that dlt neither infers types nor writes the rows twice",
        "files": "Parquet zstd; finished packages are deleted",
    },
}


# Configuration of dlt, by its environment variables.
BEST = {
    "DATA_WRITER__BUFFER_MAX_ITEMS": "100000",
    "DATA_WRITER__COMPRESSION": "zstd",
    "LOAD__DELETE_COMPLETED_JOBS": "true",
}


@dataclass(slots=True)
class Dlt:
    """The contender with one of the variants."""

    variant: Literal["default", "best"]
    _workspace: BenchWorkspace | None = None
    _python: Path = Path()

    @property
    def name(self) -> str:
        """Its name."""
        return f"dlt-{self.variant}"

    @property
    def what(self) -> str:
        """What it is."""
        return "dlt: a resource over confluent-kafka and orjson, the destination `filesystem`"

    @property
    def settings(self) -> Mapping[str, str]:
        """Its settings in words."""
        return {
            **SETTINGS[self.variant],
            "processes": "one",
            "broken": "the resource leaves out what is no JSON or has a value of a wrong type",
            "output": "the local disk, which favours it: no upload",
        }

    @property
    def cases(self) -> frozenset[Case]:
        """One table only."""
        return frozenset({"one"})

    def versions(self) -> Mapping[str, str]:
        """Return the versions of its libraries."""
        return VERSIONS

    def prepare(self, workspace: BenchWorkspace) -> None:
        """Install dlt. Safe to repeat: what exists is kept."""
        self._workspace = workspace
        packages = (f"{name}=={version}" for name, version in VERSIONS.items())
        self._python = own_python(f"dlt-{VERSIONS['dlt']}", tuple(packages))

    def steps(self, job: BenchJob, place: BenchPlace) -> Iterator[BenchStep]:
        """Yield the pipeline. Safe to repeat: each place has a pipeline of its own."""
        assert self._workspace is not None, "prepare() comes first"
        order = {
            "topic": job.topic,
            "ends": job.ends,
            "bootstrap": self._workspace.endpoints.bootstrap,
            "form": "dicts" if self.variant == "default" else "arrow",
            "output": str(place.output),
            "pipelines": str(place.folder / "pipelines"),
            "dataset": DATASET,
        }
        path = place.folder / "order.json"
        path.write_text(json.dumps(order))
        env = base_environment() | {"RUNTIME__DLTHUB_TELEMETRY": "false"}
        if self.variant == "best":
            env |= BEST
        # -P: this folder has a module of the name dlt.
        argv: list[str | Path] = [self._python, "-P", JOB, path]
        yield BenchStep(name="job", argv=argv, env=env, cwd=place.folder)

    def results(self, job: BenchJob, place: BenchPlace) -> Sequence[ResultTable]:
        """Return the files of the table."""
        files = sorted(str(path) for path in (place.output / DATASET / EVENTS).glob("*.parquet"))
        return [ResultTable(name=EVENTS, files=files, columns=COLUMNS)]
