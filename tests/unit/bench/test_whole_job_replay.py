"""The contender `tallystick-replay` replays the declaration of the other variants, from a DAG file."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.whole_job.contender import (
    BenchEndpoints,
    BenchJob,
    BenchPlace,
    BenchWorkspace,
    Case,
)
from bench.whole_job.contenders import tallystick_replay
from bench.whole_job.contenders.prepared import packages_of
from bench.whole_job.contenders.tallystick_replay import TallystickReplay
from bench.whole_job.contenders.tallystick_tasks import ReplayOrder
from tallystick.cli.loading import load_pipeline
from tallystick.pipeline import Upkeep

HOUR_MS = 3_600_000


def job_of(case: Case) -> BenchJob:
    return BenchJob(
        topic="clicks-small",
        ends=(1, 2),
        from_ms=494_000 * HOUR_MS,
        to_ms=494_001 * HOUR_MS,
        records=3,
        broken=0,
        case=case,
    )


@pytest.mark.parametrize("case", ["one", "three"])
def test_the_dag_file_declares_what_the_other_variants_do(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tallystick_replay, "engine_python", lambda: Path("engine/bin/python"))
    contender, job = TallystickReplay(), job_of(case)
    endpoints = BenchEndpoints(
        bootstrap="127.0.0.1:1",
        s3_url="http://127.0.0.1:2",
        s3_access_key="a",
        s3_secret_key="b",
        s3_region="us-east-1",
        bucket="bench",
    )
    contender.prepare(BenchWorkspace(folder=tmp_path, endpoints=endpoints, cores=2, warm_up=job))
    (step,) = contender.steps(job, BenchPlace(folder=tmp_path, prefix="runs/one"))
    python, flag, program, verb, dag_file, *span = step.argv
    assert (str(python), flag, verb) == ("engine/bin/python", "-c", "replay")
    assert program == "from tallystick.cli import main; main()"
    assert step.env is not None
    assert (Path(step.env["PYTHONPATH"]) / "tallystick" / "cli").is_dir()
    assert span == ["--from", "2026-05-10T08:00:00+00:00", "--to", "2026-05-10T09:00:00+00:00"]
    found = load_pipeline(Path(dag_file), None)
    order = ReplayOrder(
        case=case,
        topic=job.topic,
        warehouse="s3://bench/runs/one",
        from_ms=job.from_ms,
        to_ms=job.to_ms,
    )
    assert found.pipeline.to_spec() == order.pipeline().to_spec()
    assert found.pipeline.upkeep == Upkeep(parquet_version=2)
    assert (Path(found.job_root) / found.pipeline.job).is_file()


def test_the_extra_engine_has_what_decodes_records_and_neither_spark_nor_pandas() -> None:
    found = packages_of("tallystick", frozenset({"engine"}))
    assert {"numba", "llvmlite", "numpy", "pyarrow", "pyiceberg", "boto3"} <= found.keys()
    assert not {"pandas", "pyspark", "pyspark-client", "apache-airflow"} & found.keys()
    assert {"pandas", "pyspark", "numba"} <= packages_of("tallystick", frozenset({"spark"})).keys()
