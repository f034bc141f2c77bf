"""Runs `tally replay`: loads the DAG file and its job, opens the lake, and replays the span with a name for its run."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tallystick.cli.errors import busy, note
from tallystick.cli.lake_argument import open_lake
from tallystick.cli.loading import DagPipeline, as_a_program, load_job, load_pipeline, shown_path
from tallystick.cli.waiting import kafka_calls, limited
from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.registry import RegistrySettings
from tallystick.connections.resolve import resolve
from tallystick.errors import (
    InvalidPipeline,
    InvalidRequest,
    RetryLater,
    Superseded,
    TallystickError,
)
from tallystick.format import keys
from tallystick.format.interval import Request
from tallystick.operations.job_file import job_file
from tallystick.operations.kafka_log import KafkaLog
from tallystick.operations.plan import PlanRequest
from tallystick.operations.run_request import SWITCHES, RunDates, RunParams, parse_params
from tallystick.registry.port import SchemaRegistry
from tallystick.spark.in_one_process import ReplayResult, replay

_SWITCH_OF_HINT = re.compile(r"\b(accept_\w+|take_over)=true")
_CLEAR = re.compile(r"\bclears?\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """The options of a replay, as they were typed."""

    start: str
    end: str
    pipeline: str | None
    run: str | None
    mode: str
    as_json: bool
    switches: Mapping[str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayAnswer:
    """What a replay answers. `publish`: the command for the pipeline's outputs outside the lake, empty if it has none."""

    result: ReplayResult
    mode: str
    start: datetime
    end: datetime
    publish: tuple[str, ...]
    elapsed_s: float


def replayed(file: Path, options: ReplayOptions) -> ReplayAnswer:
    """Replay a span. Safe to repeat: `spark.in_one_process.replay` is, and the name of the run depends on the span."""
    started = time.monotonic()
    params = parse_params(
        {"mode": options.mode, "from": options.start, "to": options.end, **options.switches}
    )
    assert params.start is not None
    assert params.end is not None
    with _only_errors(as_json=options.as_json):
        found = load_pipeline(file, options.pipeline)
        path = job_file(found.pipeline, found.job_root)
        source = path.read_bytes()
        transform = _arrow_transform(path)
        kafka = resolve(KafkaSettings, found.pipeline.kafka, environ=os.environ)
        lake = open_lake(found.pipeline.warehouse, writes=True, begins=True)
        request = _request(found, source, params, run=options.run, now=lake.runtime.now())
        with (
            _resumable(request.request.run, named=options.run is not None, params=params),
            busy("replaying"),
            as_a_program(path),
        ):
            result = replay(
                lake,
                request,
                transform,
                open_log=lambda: _planner(kafka, found.pipeline.kafka),
                open_registry=_registry,
                environ=os.environ,
            )
    outside = found.pipeline.outputs or found.pipeline.registrations
    publish = ("tally", "publish", result.uri, "--pipeline", str(file)) if outside else ()
    return ReplayAnswer(
        result=result,
        mode=options.mode,
        start=params.start,
        end=params.end,
        publish=publish,
        elapsed_s=time.monotonic() - started,
    )


def _arrow_transform(path: Path) -> Callable[..., Any]:
    """Return the transform of an Arrow job; raises the job's own error, and InvalidPipeline if the job needs Spark."""
    job = load_job(path)
    if job.error is not None and "No module named 'pyspark" not in job.error.message:
        raise type(job.error)(f"{job.where}{job.error.message}", hint=job.error.hint)
    if job.kind == "dataframe" or job.error is not None:
        raise InvalidPipeline(
            f"the job {shown_path(path)} computes with Spark, and `tally replay` starts none.",
            hint="run the pipeline's DAG in Airflow, or write the job with `run` (Arrow). Nothing was written.",
        )
    assert job.transform is not None
    return job.transform


def _request(
    found: DagPipeline, source: bytes, params: RunParams, *, run: str | None, now: datetime
) -> PlanRequest:
    assert params.start is not None
    name = run_name(params, now=now) if run is None else run
    try:
        request = Request(dag=found.dag_id, run=name, clear=0)
    except ValueError as error:
        raise InvalidRequest(
            f"--run: {error}.", hint="use a name of 1 to 512 printable characters."
        ) from None
    return PlanRequest(
        pipeline=found.pipeline,
        job_source=source,
        request=request,
        params=params,
        dates=RunDates(data_interval=None, run_after=now),
        first=params.start,
    )


def run_name(params: RunParams, *, now: datetime) -> str:
    """Return the name of the run of a command without --run: the same for the same span and switches.

    With mode=replace and --take-over it also has the instant: a run that was planned before gets what it has, so with the
    same name neither would have an effect.
    """
    assert params.start is not None
    assert params.end is not None
    first, last = keys.interval_part(params.start, params.end).split("-")
    parts = ["tally", first, last, *(one for one in SWITCHES if getattr(params, one))]
    if not _is_lasting(params):
        parts += ["replace"] if params.mode == "replace" else []
        parts.append(keys.instant(now))
    return "__".join(parts)


def _is_lasting(params: RunParams) -> bool:
    """Return True if a repeated command without --run has the same run."""
    return params.mode == "process" and not params.take_over


@contextmanager
def _resumable(run: str, *, named: bool, params: RunParams) -> Iterator[None]:
    """Print how to continue a run whose name is not found again by itself, and add it to errors that a retry may end."""
    again = ""
    if not named and not _is_lasting(params):
        again = f"To continue it, repeat the command with --run {run}."
        note(f"Run {run}. {again}")
    try:
        yield
    except KeyboardInterrupt:
        note(f"Interrupted. {again or 'Repeat the command to continue.'}")
        raise
    except TallystickError as error:
        shown = with_options(error)
        if again and isinstance(error, RetryLater):
            shown = type(error)(shown.message, hint=f"{shown.hint} {again}")
        raise shown from None


def with_options(error: TallystickError) -> TallystickError:
    """Return the error with a next step in a shell, if its own next step is one in Airflow."""
    if isinstance(error, Superseded):
        again = (
            "do nothing if that was intended; otherwise repeat the command with another --run NAME."
        )
        return type(error)(error.message, hint=again)
    hint = error.hint
    if switches := sorted(set(_SWITCH_OF_HINT.findall(hint))):
        options = ", ".join(f"--{one.replace('_', '-')}" for one in switches)
        hint += f" As options of this command: {options}."
    if _CLEAR.search(hint):
        hint += (
            " In place of a clear, repeat the command with --take-over and without --run: it plans the span anew, and "
            "cancels all other grants in it."
        )
    return type(error)(error.message, hint=hint)


@contextmanager
def _planner(settings: KafkaSettings, connection: str) -> Iterator[KafkaLog]:
    """Connect to Kafka for planning, within the time limit of the command."""
    from tallystick.kafka.planning import (
        LogPlanner,
    )  # a span that is committed needs no client of Kafka

    with (
        kafka_calls(connection).watched("reading the topics"),
        LogPlanner(limited(settings)) as log,
    ):
        yield log


def _registry(name: str) -> SchemaRegistry:
    from tallystick.registry.client import RegistryClient  # few pipelines have one

    return RegistryClient(resolve(RegistrySettings, name, environ=os.environ))


@contextmanager
def _only_errors(*, as_json: bool) -> Iterator[None]:
    """With JSON, silence all loggers: standard error is only for errors."""
    before = logging.root.manager.disable
    if as_json:
        logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
