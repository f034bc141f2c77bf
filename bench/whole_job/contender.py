"""The interface of a contender: what it is to do, the processes that it starts for that, and where its tables are.

The harness starts the processes, measures them, and reads the tables with readers of its own. A contender never measures
or checks itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

EVENTS, DEAD_LETTERS, TOTALS = "events", "dead_letters", "totals"
Case = Literal["one", "three"]
"""one: only the table of events; broken records are skipped or kept, as the contender usually does.
three: events, the broken records with their bytes, and a row per event type and hour: count and sum(price * qty)."""
TABLES: Mapping[Case, tuple[str, ...]] = {
    "one": (EVENTS,),
    "three": (EVENTS, DEAD_LETTERS, TOTALS),
}

# The columns by which the check compares each table. `partition` and `offset` are the record's place in the topic.
CANONICAL: Mapping[str, Mapping[str, str]] = {
    EVENTS: {
        "event_id": "varchar",
        "event_type": "varchar",
        "user_id": "bigint",
        "session": "varchar",
        "ts": "bigint",
        "page": "varchar",
        "referrer": "varchar",
        "price": "double",
        "qty": "integer",
        "os": "varchar",
        "ver": "varchar",
        "partition": "integer",
        "offset": "bigint",
    },
    DEAD_LETTERS: {"partition": "integer", "offset": "bigint", "value": "blob"},
    TOTALS: {"event_type": "varchar", "hour": "bigint", "events": "bigint", "revenue": "double"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchEndpoints:
    """The servers that every contender uses. `s3_url` is the counting proxy, which forwards to the S3 server.

    `registry`: the connection of the schema registry as JSON, if the benchmark has one.
    """

    bootstrap: str
    s3_url: str
    s3_access_key: str
    s3_secret_key: str = field(repr=False)
    s3_region: str
    bucket: str
    registry: str | None = field(default=None, repr=False)

    def aws_environment(self) -> dict[str, str]:
        """Return the variables with which boto3's chain uses the proxy, and no configuration of this machine."""
        return {
            "AWS_ENDPOINT_URL_S3": self.s3_url,
            "AWS_ACCESS_KEY_ID": self.s3_access_key,
            "AWS_SECRET_ACCESS_KEY": self.s3_secret_key,
            "AWS_REGION": self.s3_region,
            "AWS_DEFAULT_REGION": self.s3_region,
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchJob:
    """One replay: all records of a topic, partition p from offset 0 to `ends[p]`.

    The timestamps of the records are in [`from_ms`, `to_ms`): one hour, or the hours of a backfill. `records` is the sum
    of `ends`; `broken` of them are no valid events.
    """

    topic: str
    ends: tuple[int, ...]
    from_ms: int
    to_ms: int
    records: int
    broken: int
    case: Case

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that the case has."""
        return TABLES[self.case]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchWorkspace:
    """What a contender keeps over all runs: a folder of its own, the servers, the number of cores, and a small job.

    `warm_up` is a job of few records with the case "three", for what is made once, such as a class archive.
    """

    folder: Path
    endpoints: BenchEndpoints
    cores: int
    warm_up: BenchJob


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlace:
    """Where one run writes: an empty local folder and an empty prefix of the bucket, which no other run has.

    `output`, a folder in it, is for tables on the local disk: what it contains after the run is "bytes at rest".
    """

    folder: Path
    prefix: str

    @property
    def output(self) -> Path:
        """The folder for tables on the local disk; it is created before the run."""
        return self.folder / "output"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchStep:
    """One process of a run, which is measured with all its descendants. `env` is its complete environment.

    `name` is e.g. plan, stage or commit; if there are several of a kind, with a number: stage-007. The step that does
    what any other contender does in its only process is `main`.
    """

    name: str
    argv: Sequence[str | Path]
    env: Mapping[str, str]
    main: bool = True
    cwd: Path | None = None


def step_kind(name: str) -> str:
    """Return the name of a step without its number."""
    kind, dash, number = name.rpartition("-")
    return kind if dash and number.isdecimal() else name


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTable:
    """The Parquet files of one table: local paths, or `s3://` addresses, and SQL for each column that is compared.

    `columns`: an expression over the columns of the files for each canonical column, such as `"device.os"` for `os`, in
    the dialect of DuckDB. A contender that does not keep the places of events leaves out `partition` and `offset`.
    """

    name: str
    files: Sequence[str]
    columns: Mapping[str, str]


class Contender(Protocol):
    """One way to do the job, with one set of settings."""

    @property
    def name(self) -> str:
        """The name with the variant, such as `spark-best`."""
        ...

    @property
    def what(self) -> str:
        """What it is, in a sentence."""
        ...

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings in words, and what favours or burdens it."""
        ...

    @property
    def cases(self) -> frozenset[Case]:
        """The cases that it can do."""
        ...

    def versions(self) -> Mapping[str, str]:
        """Return the versions of the programs that only it uses."""
        ...

    def prepare(self, workspace: BenchWorkspace) -> None:
        """Make what is made once per machine or image: downloads, class archives. It is not measured.

        Safe to repeat: what exists is kept.
        """
        ...

    def steps(self, job: BenchJob, place: BenchPlace) -> Iterator[BenchStep]:
        """Yield the processes of a run, in order. The next one is asked for after the one before has ended with 0.

        Safe to repeat: each run has a place of its own.
        """
        ...

    def results(self, job: BenchJob, place: BenchPlace) -> Sequence[ResultTable]:
        """Return where the tables of the run are. It is called after the last step, and it is not measured."""
        ...
