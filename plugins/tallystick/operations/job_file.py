"""The job file of a pipeline on this machine: its place, and whether it is Python at all, before a JVM starts."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path

from tallystick.errors import InvalidPipeline
from tallystick.pipeline import Pipeline

CORRECT_JOB = "correct the job, deploy it and clear `plan`."


def job_file(pipeline: Pipeline, job_root: str) -> Path:
    """Return the path of the pipeline's job on this machine. Raises InvalidPipeline if it is no file or no Python."""
    path = Path(job_root) / pipeline.job
    if not path.is_file():
        raise InvalidPipeline(
            f"the job of pipeline {pipeline.name} is {pipeline.job!r}, and {path} is not a file.",
            hint="deploy the job file with the DAG, correct Pipeline(job=...), or pass a job_root to replay_dag.",
        )
    check_syntax(path, path.read_bytes())
    return path


def check_syntax(job: Path, source: bytes, environ: Mapping[str, str] = os.environ) -> None:
    """Raise InvalidPipeline if the job is not valid Python. It is compiled, not run.

    If the driver runs another Python than this process, nothing is checked: it may accept what this one refuses.
    """
    drivers = (environ.get("PYSPARK_DRIVER_PYTHON"), environ.get("PYSPARK_PYTHON"))
    if next((python for python in drivers if python), sys.executable) != sys.executable:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, str(job), "exec", dont_inherit=True)
    except SyntaxError as error:
        line = (error.text or "").strip()[:200]
        shown = f" `{line}`" if line else ""
        raise InvalidPipeline(
            f"the job {job}, line {error.lineno}, is not valid Python: {error.msg}:{shown}.",
            hint=CORRECT_JOB,
        ) from None
    except ValueError as error:
        raise InvalidPipeline(
            f"the job {job} is not valid Python: {error}.", hint=CORRECT_JOB
        ) from None
