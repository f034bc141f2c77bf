"""The native bound: the steps of tallystick's job in Rust, without exactly-once; the program is in `native/`."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from tallystick.errors import SettingsError
from tallystick_devstack.ivy import cache_folder
from tallystick_devstack.process import base_environment, run_to_end

SOURCE = Path(__file__).with_name("native")
_CRATES = ("kafka-protocol", "lz4-sys", "sonic-rs", "arrow-array", "parquet", "rusty-s3", "ureq")
_BUILD_S = 1800.0


@dataclass(slots=True)
class NativeBound:
    """The contender."""

    _workspace: BenchWorkspace | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return "native"

    @property
    def what(self) -> str:
        """What it is."""
        return "a program in Rust: fetch, lz4, JSON into typed structs, Arrow, Parquet, S3"

    @property
    def settings(self) -> Mapping[str, str]:
        """Its settings in words."""
        return {
            "threads": "one per core, a partition at a time; the next fetch is under way while one is decoded",
            "kafka": "Fetch requests of its own with read_committed; checksums and aborted transactions are checked",
            "build": "release, fat LTO, the instructions of this machine's processor, mimalloc",
            "parquet": "zstd level 1, dictionaries and differences only where they help; no column is nullable; "
            "a file per partition, made in memory",
            "upload": "one PUT per file; the signature does not cover its content",
            "commit": "none: a second run replaces nothing and records no offsets",
            "made for these records": "the fields are in its source; codecs other than lz4 are refused",
        }

    @property
    def cases(self) -> frozenset[Case]:
        """Both cases."""
        return frozenset({"one", "three"})

    def versions(self) -> Mapping[str, str]:
        """Return the versions of its main crates, from the lock file."""
        locked = dict(
            re.findall(r'^name = "(.+)"\nversion = "(.+)"$', _lock_file(), flags=re.MULTILINE)
        )
        return {name: locked[name] for name in _CRATES}

    def prepare(self, workspace: BenchWorkspace) -> None:
        """Build the program. Raises SettingsError if a compiler is missing. Safe to repeat: cargo keeps what is built."""
        self._workspace = workspace
        for program in ("cargo", "cc"):
            if shutil.which(program) is None:
                raise SettingsError(
                    f"the contender native is built from source, and there is no {program} on PATH.",
                    hint="install Rust 1.88 or newer and a C compiler, or leave out native.",
                )
        run_to_end(
            ["cargo", "build", "--release", "--locked", "--manifest-path", SOURCE / "Cargo.toml"],
            name="the build of the contender native",
            log_path=workspace.folder / "build.log",
            deadline_s=_BUILD_S,
            env={
                **os.environ,
                "CARGO_TARGET_DIR": str(_target()),
                "RUSTFLAGS": "-C target-cpu=native",
                "CFLAGS": "-O3 -march=native",  # of zstd, LZ4 and mimalloc
            },
        )

    def steps(self, job: BenchJob, place: BenchPlace) -> Iterator[BenchStep]:
        """Yield the program. Safe to repeat: each place has a prefix of its own."""
        ends = self._space.endpoints
        order = {
            "topic": job.topic,
            "ends": job.ends,
            "bootstrap": ends.bootstrap,
            "bucket": ends.bucket,
            "prefix": place.prefix,
            "case": job.case,
            "threads": self._space.cores,
        }
        path = place.folder / "order.json"
        path.write_text(json.dumps(order))
        env = base_environment() | ends.aws_environment()
        program = _target() / "release" / "native-bound"
        yield BenchStep(name="native", argv=[program, path], env=env, cwd=place.folder)

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


def _target() -> Path:
    # A build takes minutes, so it is kept between benchmarks. Cargo builds again what has changed.
    return cache_folder() / "bench-native"


def _lock_file() -> str:
    return (SOURCE / "Cargo.lock").read_text()
