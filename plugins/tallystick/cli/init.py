"""`tally init`: writes the DAG file and the job file of a new pipeline, from a sample of its topic or of a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tallystick.cli.errors import busy, exit_on_error, on_terminal, out, out_json

if TYPE_CHECKING:
    from tallystick.operations.check.finding import Checked
    from tallystick.operations.sample.guess import Guess
    from tallystick.operations.sample.records import Sample
    from tallystick.operations.sample.template import Template

RECORDS = 1_000
# A topic without a record in this time counts as finished: its DAG gets an end_date.
_FINISHED = timedelta(days=7)

SampleFile = typer.Option(
    None,
    "--sample",
    metavar="FILE",
    help="JSON lines (.gz too), instead of the topic's records.",
)
Project = typer.Option(
    None,
    "--project",
    metavar="FOLDER",
    help="Folder with dags/ and spark_jobs/. Default: the nearest one upwards with dags/.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Initialized:
    """The result of `tally init`: the files, what was left out, and the findings of the check with the sample."""

    files: tuple[Path, Path]
    template: Template
    findings: tuple[Checked, ...]


@exit_on_error
def init(
    name: str = typer.Argument(metavar="NAME", help="The name of the pipeline and of its files."),
    topic: str | None = typer.Option(
        None, "--topic", metavar="TOPIC", help="The topic in Kafka. Default: NAME."
    ),
    kafka: str = typer.Option(
        "default", "--kafka", metavar="NAME", help="The connection to the topic, by its name."
    ),
    sample: Path | None = SampleFile,
    records: int = typer.Option(
        RECORDS, "--records", metavar="N", min=1, max=100_000, help="Number of records to look at."
    ),
    partition_by: str | None = typer.Option(
        None, "--partition-by", metavar="COLUMN", help="The time whose day partitions the table."
    ),
    warehouse: str | None = typer.Option(
        None, "--warehouse", metavar="URI", help="Default: NAME next to $TALLYSTICK_LAKE."
    ),
    project: Path | None = Project,
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Write dags/NAME.py and spark_jobs/NAME.py from a sample of a topic. Existing files are never changed."""
    from tallystick.format import keys

    keys.check_name(name, "pipeline")
    topic = keys.check_topic(topic or name)
    folder = project or project_folder(Path.cwd())
    files = (folder / "dags" / f"{name}.py", folder / "spark_jobs" / f"{name}.py")
    refuse_existing(files)
    with busy("reading the sample"):
        samples = _samples(topic, kafka, sample, records)
    new = template_of(
        name,
        topic,
        kafka,
        samples,
        origin=sample,
        warehouse=warehouse,
        day_of=partition_by,
        first_party=(folder / "plugins" / "tallystick").is_dir(),
    )
    write_files(new, files)
    with busy("checking the files with the sample"):
        findings = verify(files[0], samples)
    answer = Initialized(files=files, template=new, findings=findings)
    if as_json:
        out_json(form(answer))
    else:
        out(text(answer))


def project_folder(start: Path) -> Path:
    """Return the nearest folder upwards that has DAG files, or `start` if there is none."""
    return next((f for f in (start, *start.parents) if (f / "dags").is_dir()), start)


def refuse_existing(files: Sequence[Path]) -> None:
    """Raise InvalidRequest if one of the files exists."""
    from tallystick.errors import InvalidRequest, listed

    there = [file for file in files if file.exists() or file.is_symlink()]
    if there:
        raise InvalidRequest(
            f"{listed(there)}: expected no such file, found one. Nothing was written.",
            hint="choose another NAME, or rename the file: tally init never changes a file.",
        )


def _samples(topic: str, kafka: str, file: Path | None, count: int) -> tuple[Sample, ...]:
    from tallystick.cli.waiting import kafka_calls, limited
    from tallystick.connections.kafka import KafkaSettings
    from tallystick.connections.resolve import resolve
    from tallystick.errors import InvalidRequest
    from tallystick.kafka.planning import LogPlanner
    from tallystick.operations.sample import records as sampling

    if file is not None:
        return (sampling.of_file(file, topic, count, now=datetime.now(UTC)),)
    settings = limited(resolve(KafkaSettings, kafka, environ=os.environ))
    with kafka_calls(kafka).watched(f"reading records of {topic}"):
        with LogPlanner(settings) as log:
            state = log.describe([topic])[topic]
        found = sampling.of_topic(settings, state, count, both_ends=True)
    if not found:
        raise InvalidRequest(
            f"topic {topic!r} has no records.",
            hint="produce records first, or name a file of JSON lines with --sample FILE.",
        )
    return found


def template_of(
    name: str,
    topic: str,
    kafka: str,
    samples: Sequence[Sample],
    *,
    origin: Path | None,
    warehouse: str | None,
    day_of: str | None,
    first_party: bool = False,
) -> Template:
    """Return what to write. Raises InvalidRequest if no value is a JSON object, or if `day_of` is no time column."""
    from tallystick.errors import InvalidRequest
    from tallystick.operations.sample.guess import guess
    from tallystick.operations.sample.template import Template, fitting_schedule

    found = guess(value for sample in samples for value in sample.values())
    if not found.columns:
        raise InvalidRequest(
            f"expected JSON objects with fields at the top level, found none in {found.records:,} records of "
            f"{origin or f'topic {topic}'}.{_wire_format(samples)}",
            hint="use a topic of JSON objects; declare other formats by hand (docs/reference/declaration.md).",
        )
    source = f"topic {topic}" if origin is None else origin.name
    first, end = _dates(samples)
    now = datetime.now(UTC)
    schedule, start, runs = (
        fitting_schedule(first, end) if end is not None else ("@daily", first, (now - first).days)
    )
    uri, note = _warehouse(name, warehouse)
    return Template(
        name=name,
        table=name.replace("-", "_"),
        topic=topic,
        kafka=kafka,
        warehouse=uri,
        warehouse_note=note,
        guess=found,
        origin=f"{found.objects:,} records of {source}",
        day_of=_day_of(found, day_of),
        choices=tuple(c.column.name for c in found.columns if c.is_time),
        start=start,
        end=end,
        runs=max(0, runs),
        schedule=schedule,
        first_party=first_party,
    )


def _wire_format(samples: Sequence[Sample]) -> str:
    from tallystick.operations.check.dry_run import confluent_schema_id

    ids = {
        found
        for sample in samples
        for value in sample.values()
        if (found := confluent_schema_id(value)) is not None
    }
    if not ids:
        return ""
    return (
        f" They have Confluent's wire format (schema {min(ids)}): declare the topic with Avro, Protobuf or Json and "
        "registry=... (docs/how-to/read-avro.md)."
    )


def _day_of(found: Guess, named: str | None) -> str:
    """Return the time column of the partition rule: the named one, the only one, the one asked for, or `_timestamp`."""
    from tallystick.errors import InvalidRequest, listed

    every = [c.column.name for c in found.columns if c.is_time]
    if named is not None:
        if named not in (*every, "_timestamp"):
            raise InvalidRequest(
                f"--partition-by: expected one of the times {listed([*every, '_timestamp'])}, found {named!r}.",
                hint="name one of these columns.",
            )
        return named
    likely = [c.column.name for c in found.times]
    if len(likely) == 1:
        return likely[0]
    if len(likely) > 1 and on_terminal() and sys.stdin.isatty():
        return _asked(likely)
    return "_timestamp"


def _asked(likely: Sequence[str]) -> str:
    import click

    choice = click.Choice([*likely, "_timestamp"])
    return str(
        typer.prompt(
            "Partition the table by the day of", type=choice, default="_timestamp", err=True
        )
    )


def _dates(samples: Sequence[Sample]) -> tuple[datetime, datetime | None]:
    """Return the day of the oldest record, and of the newest if the topic seems finished; today for a file."""
    now = datetime.now(UTC)
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    stamps = [
        stamp
        for sample in samples
        if sample.from_kafka
        for batch in sample.batches
        for stamp in batch.column("timestamp").to_pylist()
        if datetime(1970, 1, 2, tzinfo=UTC) < stamp <= now
    ]
    if not stamps:
        return today, None
    days = [
        stamp.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        for stamp in (min(stamps), max(stamps))
    ]
    return days[0], days[1] if now - max(stamps) > _FINISHED else None


def _warehouse(name: str, named: str | None) -> tuple[str, str | None]:
    """Return the warehouse and a note for the file: the named one, or NAME next to the lake of the environment."""
    if named is not None:
        return named.rstrip("/"), None
    from tallystick.cli.lake_argument import LAKE_ENV

    lake = os.environ.get(LAKE_ENV, "")
    if lake.startswith("s3://") and lake.count("/") >= 3:
        return f"{lake.rstrip('/').rpartition('/')[0]}/{name}", None
    return f"s3://lake/{name}", "Decide: a bucket, and a prefix in it that nothing else uses."


def write_files(new: Template, files: tuple[Path, Path]) -> None:
    """Write both files; raises InvalidRequest if one exists.

    Safe to repeat: a file is created exclusively, so that the second call is refused and changes nothing.
    """
    from tallystick.operations.sample.template import dag_source, job_source

    refuse_existing(files)
    # The job first: Airflow must not find a DAG whose job is missing.
    for file, source in reversed(list(zip(files, (dag_source(new), job_source(new)), strict=True))):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with file.open("x", encoding="utf-8") as opened:
                opened.write(source)
        except FileExistsError:
            refuse_existing([file])
            raise


def verify(dag_file: Path, samples: Sequence[Sample]) -> tuple[Checked, ...]:
    """Load both files, and decode and transform the whole sample with them."""
    from tallystick.cli.check_run import CheckOptions, check_file

    options = CheckOptions(records=RECORDS, kafka=False, store=False)
    return tuple(check_file(dag_file, options, samples=samples))


def text(answer: Initialized) -> str:
    """Return the answer as text: files, columns, what became of the sample, and the next steps."""
    from tallystick.cli import check
    from tallystick.cli.loading import shown_path
    from tallystick.cli.text import many, paragraph

    new = answer.template
    dag, job = (shown_path(file) for file in answer.files)
    decide = sum(any(n.startswith("decide") for n in c.notes) for c in new.guess.columns)
    parts = [
        paragraph(
            f"Wrote {dag} and {job}: {many(len(new.guess.columns), 'column')} from {new.origin}."
        ),
        "\n".join(
            check.text(one)
            for one in answer.findings
            if one.state in ("FAIL", "warning") or one.check in ("records", "transform")
        ),
    ]
    open_questions = f"{many(decide, 'column')} to decide on; " if decide else ""
    steps = [
        f"read {dag}: comments have what to decide ({open_questions}warehouse, schedule)",
        f"run: tally check {dag}",
        f"Airflow reads DAG files from {_dags_folder(answer.files[0])}; a new DAG is paused",
        f"run: airflow dags unpause {new.name}",
    ]
    lines = [paragraph(f"{n}. {step}", indent="  ") for n, step in enumerate(steps, 1)]
    return "\n\n".join([*parts, "\n".join(["Next:", *lines])])


def _dags_folder(dag_file: Path, environ: Mapping[str, str] = os.environ) -> str:
    configured = environ.get("AIRFLOW__CORE__DAGS_FOLDER")
    if not configured:
        return "its dags_folder (airflow config get-value core dags_folder)"
    if Path(configured).resolve() == dag_file.resolve().parent:
        return f"{configured}, where the file is"
    return f"{configured}: copy the file there, and its job next to that folder"


def form(answer: Initialized) -> dict[str, Any]:
    """Return the JSON of `tally init`."""
    from tallystick.cli import check

    new = answer.template
    return {
        "files": [str(file) for file in answer.files],
        "topic": new.topic,
        "warehouse": new.warehouse,
        "partition_by": f"day({new.day_of})",
        "columns": [
            {
                "name": one.column.name,
                "type": one.column.text,
                "required": one.column.required,
                "field": one.column.field,
                "parse": one.column.parse,
                "notes": list(one.notes),
            }
            for one in new.guess.columns
        ],
        "check": check.form(answer.files[0], answer.findings),
    }
