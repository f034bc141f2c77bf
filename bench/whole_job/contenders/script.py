"""A hand-written script: confluent-kafka, msgspec, PyArrow, boto3. No exactly-once, no table format."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import boto3

from bench.whole_job.contender import (
    BenchJob,
    BenchPlace,
    BenchStep,
    BenchWorkspace,
    Case,
    ResultTable,
)
from bench.whole_job.contenders.plain_spark import COLUMNS
from tallystick_devstack.process import base_environment

JOB = Path(__file__).with_name("script_job.py")


@dataclass(slots=True)
class HandWrittenScript:
    """The contender."""

    _workspace: BenchWorkspace | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return "script"

    @property
    def what(self) -> str:
        """What it is."""
        return "a script of 220 lines: confluent-kafka, msgspec into typed objects, PyArrow, boto3"

    @property
    def settings(self) -> Mapping[str, str]:
        """Its settings in words."""
        return {
            "processes": "one per core, a partition at a time; batches of 50,000; no garbage collector",
            "parquet": "zstd level 1, dictionaries only where they help; a file per partition on S3",
            "commit": "none: a second run leaves its files next to those of the first",
        }

    @property
    def cases(self) -> frozenset[Case]:
        """Both cases."""
        return frozenset({"one", "three"})

    def versions(self) -> Mapping[str, str]:
        """Return the versions of its libraries."""
        return {name: version(name) for name in ("confluent-kafka", "msgspec", "pyarrow", "boto3")}

    def prepare(self, workspace: BenchWorkspace) -> None:
        """Keep the workspace. Safe to repeat: nothing is made."""
        self._workspace = workspace

    def steps(self, job: BenchJob, place: BenchPlace) -> Iterator[BenchStep]:
        """Yield the script. Safe to repeat: each place has a prefix of its own."""
        ends = self._space.endpoints
        order = {
            "topic": job.topic,
            "ends": job.ends,
            "bootstrap": ends.bootstrap,
            "bucket": ends.bucket,
            "prefix": place.prefix,
            "case": job.case,
            "processes": self._space.cores,
            "scratch": str(place.folder),
        }
        path = place.folder / "order.json"
        path.write_text(json.dumps(order))
        env = base_environment() | ends.aws_environment()
        yield BenchStep(name="script", argv=[sys.executable, JOB, path], env=env, cwd=place.folder)

    def results(self, job: BenchJob, place: BenchPlace) -> Sequence[ResultTable]:
        """Return the objects below the prefix of each table."""
        ends = self._space.endpoints
        client = boto3.client(
            "s3",
            endpoint_url=ends.s3_url,
            aws_access_key_id=ends.s3_access_key,
            aws_secret_access_key=ends.s3_secret_key,
            region_name=ends.s3_region,
        )
        found = []
        for name in job.tables:
            listed = client.list_objects_v2(Bucket=ends.bucket, Prefix=f"{place.prefix}/{name}/")
            files = [f"s3://{ends.bucket}/{item['Key']}" for item in listed.get("Contents", [])]
            found.append(ResultTable(name=name, files=files, columns=COLUMNS[name]))
        return found

    @property
    def _space(self) -> BenchWorkspace:
        assert self._workspace is not None, "prepare() comes first"
        return self._workspace
