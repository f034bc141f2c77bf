"""Runs the checks of `tally check` one after the other. A failed check does not end the others that can still be made."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from tallystick.cli.loading import (
    Loaded,
    LoadedJob,
    as_a_program,
    load_dag_file,
    load_job,
    shown_path,
)
from tallystick.cli.waiting import LIMIT_S, WatchedStore, kafka_calls, limited, notice_s
from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.registry import RegistrySettings
from tallystick.connections.resolve import resolve
from tallystick.errors import InvalidRequest, TallystickError, listed
from tallystick.format.registries import PlannedRegistry
from tallystick.kafka.planning import LogPlanner, TopicState
from tallystick.lake import Lake
from tallystick.operations.check.dry_run import dry_run
from tallystick.operations.check.finding import (
    Checked,
    failed,
    not_checked,
    of_error,
    ok,
)
from tallystick.operations.check.lake import LAKE, WAREHOUSE, WRITES, lake_findings
from tallystick.operations.check.records import RECORDS, TRANSFORM, record_findings
from tallystick.operations.check.schedule import CHECK as SCHEDULE
from tallystick.operations.check.schedule import DeclaredDag, no_dag, schedule_finding
from tallystick.operations.check.schemas import SCHEMAS, schema_findings
from tallystick.operations.check.topics import RETENTION, TOPIC, topic_findings
from tallystick.operations.job_file import job_file
from tallystick.operations.plan.resolving import ResolvedPipeline, resolved_pipeline
from tallystick.operations.sample import records as sampling
from tallystick.operations.sample.records import Sample
from tallystick.operations.schemas import PipelineSchemas
from tallystick.pipeline import Pipeline
from tallystick.registry.client import RegistryClient
from tallystick.runtime import system_runtime
from tallystick.store.open import open_store

DAG_FILE, DECLARATION, JOB, CONNECTION = "DAG file", "declaration", "job", "connection"
_ANSWER_MS = 5_000
_CHATTY = ("kafka", "botocore", "boto3", "urllib3", "tallystick.engine.transform")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """What is checked. `samples`: files by topic, or by "" for the pipeline's only topic."""

    records: int
    samples: Mapping[str, Path] = field(default_factory=dict)
    kafka: bool = True
    store: bool = True
    probe: bool = False


def check_file(
    file: Path, options: CheckOptions, *, samples: Sequence[Sample] = ()
) -> Iterator[Checked]:
    """Yield the findings on a DAG file, its pipelines and all that they name. Nothing is written without `probe`.

    `samples`: records to try; by default those that the options name, or the topics' first ones.
    Raises InvalidRequest if the file is no Python file, or if a sample is of no topic or cannot be read.
    """
    with _quiet():
        loaded = load_dag_file(file)
        yield from _of_loading(loaded, file)
        dags = _dags(loaded)
        pipelines = _pipelines(loaded)
        for pipeline in pipelines:
            own = [dag for dag in dags if dag.pipeline is pipeline]
            root = own[0].job_root if own else str(file.resolve().parent.parent)
            first = min((dag.first for dag in own), default=None)
            for finding in chain(
                _of_schedule(loaded, pipeline, own),
                _shared_warehouse(pipeline, pipelines),
                check_pipeline(pipeline, root, options, first=first, samples=samples),
            ):
                yield replace(finding, pipeline=pipeline.name)


def _of_loading(loaded: Loaded, file: Path) -> Iterator[Checked]:
    pipelines = _pipelines(loaded)
    if loaded.error is not None:
        # An error after the declaration is one of the DAG, e.g. of its schedule.
        declared = loaded.error.kind == "invalid_pipeline" and "replay_dag(" in loaded.where
        check = SCHEDULE if declared and pipelines else DAG_FILE
        yield of_error(check, loaded.error, where=loaded.where)
    if pipelines:
        yield ok(DECLARATION, f"{shown_path(file)} declares {listed(p.name for p in pipelines)}")
    elif any(type(value).__name__ == "DAG" for value in loaded.names.values()):
        yield not_checked(DECLARATION, f"{shown_path(file)} has a DAG and no pipeline, e.g. gc_dag")
    elif loaded.error is None:
        yield failed(
            DECLARATION,
            f"{shown_path(file)} declares no pipeline",
            "assign Pipeline(...) to a name at the top level of the file.",
        )
    else:
        yield not_checked("the rest", "the file declares no pipeline before its error")


def _pipelines(loaded: Loaded) -> list[Pipeline]:
    found = [value for value in loaded.names.values() if isinstance(value, Pipeline)]
    return list({id(one): one for one in found}.values())


def _dags(loaded: Loaded) -> Sequence[DeclaredDag]:
    if not loaded.airflow:
        return ()
    from tallystick.airflow.declared import declared_dags

    return declared_dags(loaded.names.values(), datetime.now(UTC))


def _of_schedule(
    loaded: Loaded, pipeline: Pipeline, dags: Sequence[DeclaredDag]
) -> Iterator[Checked]:
    if not loaded.airflow:
        yield not_checked(SCHEDULE, "Airflow is not installed in the Python of this command")
    elif dags:
        yield from map(schedule_finding, dags)
    elif loaded.error is None:
        yield no_dag(pipeline)


def _shared_warehouse(pipeline: Pipeline, pipelines: Sequence[Pipeline]) -> Iterator[Checked]:
    """Yield a problem if another pipeline of the file has the same warehouse, or one inside or around it."""
    own = f"{pipeline.warehouse}/"
    for other in pipelines:
        its = f"{other.warehouse}/"
        if other is not pipeline and (own.startswith(its) or its.startswith(own)):
            yield failed(
                WAREHOUSE,
                f"pipelines {pipeline.name} and {other.name} share {min(own, its, key=len)[:-1]}",
                "give each pipeline a warehouse of its own: a lake has one owner, and gc deletes what it does not know.",
            )


def check_pipeline(
    pipeline: Pipeline,
    job_root: str,
    options: CheckOptions,
    *,
    first: datetime | None,
    samples: Sequence[Sample] = (),
) -> Iterator[Checked]:
    """Yield the findings on one pipeline: job, connection, topics, warehouse, lake, and a dry run."""
    job, job_findings = _job(pipeline, job_root)
    yield from job_findings
    schemas = PipelineSchemas(pipeline.registry_formats(), _registry)
    if pipeline.is_open:
        found, finding = _resolved(pipeline, options)
        yield finding
        if found is None:
            return
        pipeline, schemas = found.pipeline, found.schemas
    tried = [*samples, *_file_samples(pipeline, options)]
    topics: list[TopicState] = []
    settings: list[KafkaSettings] = []
    yield from _kafka(pipeline, options, first or pipeline.begin, topics, settings)
    registries: list[PlannedRegistry] = []
    yield from _registries(pipeline, schemas, options, registries)
    yield from _store(pipeline, options)
    if not tried and settings:
        try:
            for topic in topics:
                with kafka_calls(pipeline.kafka).watched(f"reading records of {topic.name}"):
                    tried += sampling.of_topic(settings[0], topic, options.records)
        except TallystickError as error:
            yield of_error(RECORDS, error)
            return
    asked = bool(options.samples or topics)
    yield from _dry_run(pipeline, tried, job, job_root, registries, asked=asked)


def _job(pipeline: Pipeline, job_root: str) -> tuple[LoadedJob | None, list[Checked]]:
    try:
        path = job_file(pipeline, job_root)
    except TallystickError as error:
        return None, [of_error(JOB, error)]
    job = load_job(path)
    if job.error is None:
        how = "run_dataframe" if job.kind == "dataframe" else "run"
        return job, [ok(JOB, f"{shown_path(path)} calls {how}")]
    if "No module named 'pyspark" in job.error.message:
        why = f"{shown_path(path)} imports pyspark, which is not installed in the Python of this command"
        return None, [not_checked(JOB, why)]
    return None, [of_error(JOB, job.error, where=job.where)]


def _resolved(pipeline: Pipeline, options: CheckOptions) -> tuple[ResolvedPipeline | None, Checked]:
    """Return the pipeline with the topics and columns that a plan would have now, and the finding about them."""
    if not options.kafka:
        why = "topics and columns are known only to Kafka and the registry (--no-kafka, --offline)"
        return None, not_checked(SCHEMAS, why)
    try:
        settings = limited(resolve(KafkaSettings, pipeline.kafka, environ=os.environ))
        watched = kafka_calls(pipeline.kafka).watched("reading the topics")
        with watched, LogPlanner(settings) as log:
            resolved = resolved_pipeline(pipeline, None, log, _registry)
    except TallystickError as error:
        return None, of_error(SCHEMAS, error)
    found = resolved.pipeline
    details = [
        f"{table.name}: {', '.join(f'{c.name} {c.text}' for c in table.columns)}"
        for table in found.tables
    ]
    text = (
        f"{len(found.inputs)} topics, {len(found.tables)} tables; a plan would have these columns"
    )
    return resolved, Checked(check=SCHEMAS, state="ok", text=text, details=tuple(details))


def _kafka(
    pipeline: Pipeline,
    options: CheckOptions,
    first: datetime | None,
    topics: list[TopicState],
    found: list[KafkaSettings],
) -> Iterator[Checked]:
    if not options.kafka:
        yield not_checked(TOPIC, "Kafka is left out (--no-kafka, --offline)")
        return
    try:
        settings = limited(resolve(KafkaSettings, pipeline.kafka, environ=os.environ))
        quick = replace(
            settings,
            request_timeout_ms=min(settings.request_timeout_ms, _ANSWER_MS),
            bootstrap_timeout_ms=min(settings.bootstrap_timeout_ms, _ANSWER_MS),
            empty_fetch_timeout_ms=min(settings.empty_fetch_timeout_ms, 4 * _ANSWER_MS),
        )
        calls = kafka_calls(pipeline.kafka)
        with calls.watched("reading the topics"), LogPlanner(quick) as log:
            found.append(quick)
            yield ok(CONNECTION, f"{pipeline.kafka}: a broker answers at {settings.endpoint}")
            for topic in pipeline.inputs:
                yield from topic_findings(
                    log, topic.name, first=first, now=datetime.now(UTC), found=topics
                )
    except TallystickError as error:
        yield of_error(CONNECTION, error)
        yield not_checked(TOPIC, "Kafka was not reached")
        yield not_checked(RETENTION, "Kafka was not reached")


def _registries(
    pipeline: Pipeline,
    schemas: PipelineSchemas,
    options: CheckOptions,
    found: list[PlannedRegistry],
) -> Iterator[Checked]:
    if not schemas.needed:
        return
    if not options.kafka:
        yield not_checked(SCHEMAS, "the registry is left out (--no-kafka, --offline)")
        return
    yield from schema_findings(pipeline, schemas, found)


def _registry(name: str) -> RegistryClient:
    settings = resolve(RegistrySettings, name, environ=os.environ)
    return RegistryClient(settings, patience_s=_ANSWER_MS / 1_000)


def _store(pipeline: Pipeline, options: CheckOptions) -> Iterator[Checked]:
    if not options.store:
        yield not_checked(WAREHOUSE, "the warehouse is left out (--offline)")
        return
    try:
        store = WatchedStore(
            open_store(pipeline.warehouse, reads_within_s=LIMIT_S.get()), notice_s=notice_s()
        )
    except TallystickError as error:
        yield of_error(WAREHOUSE, error)
        yield not_checked(WRITES, "the warehouse cannot be opened")
        yield not_checked(LAKE, "the warehouse cannot be opened")
        return
    yield from lake_findings(
        Lake(store, system_runtime(), proven=True), pipeline, probe=options.probe
    )


def _file_samples(pipeline: Pipeline, options: CheckOptions) -> list[Sample]:
    names = [topic.name for topic in pipeline.inputs]
    found = []
    for name, path in options.samples.items():
        if name not in names and (name or len(names) != 1):
            raise InvalidRequest(
                f"--sample: expected a file of one of the topics {listed(names)}, found {name or path}.",
                hint="write --sample TOPIC=FILE.",
            )
        found.append(
            sampling.of_file(path, name or names[0], options.records, now=datetime.now(UTC))
        )
    return found


def _dry_run(
    pipeline: Pipeline,
    samples: Sequence[Sample],
    job: LoadedJob | None,
    job_root: str,
    registries: Sequence[PlannedRegistry],
    *,
    asked: bool,
) -> Iterator[Checked]:
    if not samples:
        yield not_checked(
            RECORDS, "there are no records" if asked else "no records: name a file with --sample"
        )
        return
    arrow = job is not None and job.kind == "arrow"
    path = Path(job_root) / pipeline.job
    try:
        with as_a_program(path):
            transform = job.transform if job is not None and arrow else None
            run = dry_run(pipeline, samples, transform, job_file=str(path), registries=registries)
    except TallystickError as error:
        yield of_error(RECORDS, error)
        return
    for finding in record_findings(pipeline, samples, run, arrow=arrow):
        if finding.check == TRANSFORM and job is None:
            yield not_checked(TRANSFORM, "the job cannot be loaded")
        else:
            yield finding


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the loggers of libraries: a finding has what they log."""
    loggers = [logging.getLogger(name) for name in _CHATTY]
    before = [one.level for one in loggers]
    for one in loggers:
        one.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for one, level in zip(loggers, before, strict=True):
            one.setLevel(level)
