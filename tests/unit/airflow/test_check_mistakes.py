"""`tally check` on a good pipeline, and on the mistakes that a new user makes: each is found before a run.

The mistakes are real files. Those that need a broker or S3 are in tests/kafka/test_check_servers.py.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typer.testing import Result

from tallystick import Column, Json, Pipeline, Table, Topic
from tallystick.cli import loading
from tallystick.lake import Lake, Update
from tallystick.operations.plan.tables import evolved_tables
from tallystick.runtime import system_runtime
from tallystick.store.open import open_store
from unit.cli.invoke import tally, too_wide

PROJECT = Path(__file__).parents[3]
DAG = """\
from datetime import UTC, datetime

from tallystick import Column, Json, Pipeline, Table, Topic
from tallystick.airflow import replay_dag

COLUMNS = [
    Column("page", "string"),
    Column("delta", "long"),
    Column("time", "timestamptz"),
    Column("city", "string", required=False),
]
pipeline = Pipeline(
    name="wiki",
    topics=[Topic("wikiticker", decode=Json(COLUMNS))],
    warehouse="WAREHOUSE",
    job="spark_jobs/wiki.py",
    tables=[
        Table("edits", columns=COLUMNS, partition_by=["day(time)"]),
        Table(
            "per_page",
            columns=[Column("page", "string"), Column("delta", "long")],
            keys=["page"],
            combine={"delta": "sum"},
        ),
    ],
)
dag = replay_dag(
    pipeline,
    schedule="@hourly",
    start_date=datetime(2015, 9, 12, tzinfo=UTC),
    end_date=datetime(2015, 9, 12, 23, tzinfo=UTC),
)
"""
JOB = """\
import pyarrow as pa

from tallystick.spark import run


def transform(records):
    edits = records
    per_page = edits.group_by("page").aggregate([("delta", "sum")])
    per_page = per_page.rename_columns(["page", "delta"])
    return {"edits": edits, "per_page": per_page}


if __name__ == "__main__":
    run(transform)
"""
RECORD = '{"page": "P", "delta": 7, "time": "2015-09-12T00:46:58.771Z", "city": "Rome"}'
AVRO = b"\x00\x00\x00\x00\x07\x02\x04\xff\xfe"
Edits = Sequence[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """Edits of the good files, the records, the lake before; and what the command prints."""

    dag: Edits = ()
    job: Edits = ()
    records: Sequence[str | bytes] = (RECORD,) * 4
    lake: str | None = None
    declared_before: Edits = ()
    kafka: bool = False
    sample: bool = True
    state: str = "FAIL"
    check: str
    text: str
    hint: str = ""
    others: Sequence[str] = field(default_factory=tuple)


def edited(text: str, edits: Edits) -> str:
    for before, after in edits:
        assert before in text, f"{before!r} is in the good file"
        text = text.replace(before, after)
    return text


def columns_of(source: str, warehouse: str) -> Pipeline:
    """Return the pipeline of a DAG file, without its DAG."""
    names = {"Column": Column, "Json": Json, "Pipeline": Pipeline, "Table": Table, "Topic": Topic}
    body = source[source.index("COLUMNS") : source.index("dag = ")]
    exec(body.replace("WAREHOUSE", warehouse), names)
    pipeline = names["pipeline"]
    assert isinstance(pipeline, Pipeline)
    return pipeline


def make_lake(warehouse: str, owner: str, source: str) -> None:
    """Create the lake of a pipeline, with the tables that a plan would make."""
    lake = Lake(open_store(warehouse), system_runtime(), proven=True)
    root = lake.open(owner).root
    tables = evolved_tables(root, columns_of(source, warehouse), new_uuid=lake.runtime.uuid)
    lake.swap(
        lambda snapshot: Update(
            tables=tables, topics={}, ledger=snapshot.whole_ledger().copy(), value=None
        )
    )


@pytest.fixture(autouse=True)
def _own_folder_without_servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TALLYSTICK_KAFKA_DEFAULT", "TALLYSTICK_SECRETS_DIR", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def project(folder: Path, mistake: Mistake) -> tuple[Path, Path]:
    """Write the files of a mistake; return the DAG file and the file of records."""
    warehouse = f"memory://check-{uuid.uuid4().hex[:20]}"
    if mistake.lake is not None:
        make_lake(warehouse, mistake.lake, edited(DAG, mistake.declared_before))
    dag, job = folder / "dags" / "wiki.py", folder / "spark_jobs" / "wiki.py"
    for file, source in (
        (dag, edited(DAG, mistake.dag).replace("WAREHOUSE", warehouse)),
        (job, edited(JOB, mistake.job)),
    ):
        file.parent.mkdir()
        file.write_text(source)
    records = folder / "records.jsonl"
    lines = (line.encode() if isinstance(line, str) else line for line in mistake.records)
    records.write_bytes(b"\n".join(lines))
    return dag, records


def run_check(folder: Path, mistake: Mistake, *more: str) -> Result:
    dag, records = project(folder, mistake)
    kafka = [] if mistake.kafka else ["--no-kafka"]
    sample = [f"--sample=wikiticker={records}"] if mistake.sample else []
    return tally("check", str(dag.relative_to(folder)), *sample, *kafka, *more)


MISTAKES: dict[str, Mistake] = {
    # ------------------------------------------------------------ the declaration
    "type lnog": Mistake(
        dag=[('"delta", "long")', '"delta", "lnog")')],
        check="DAG file",
        text='line 8: `Column("delta", "lnog"),`: column \'delta\': column type: expected one of',
        hint="did you mean 'long'?",
    ),
    "type bigint": Mistake(
        dag=[('"delta", "long")', '"delta", "bigint")')],
        check="DAG file",
        text="found 'bigint'",
        hint="did you mean 'long'?",
    ),
    "partition typo": Mistake(
        dag=[("day(time)", "day(tmie)")],
        check="DAG file",
        text="table edits: expected partition_by a column, found 'day(tmie)'",
        hint="use one of _kafka_partition",
    ),
    "bucket(16, page)": Mistake(
        dag=[("day(time)", "buckets(16, page)")],
        check="DAG file",
        text="partition_by: expected a column, or year(c), month(c), day(c), hour(c), bucket(n, c), truncate(n, c), "
        "found 'buckets(16, page)'",
        hint="bucket(n, c)",
    ),
    "key typo": Mistake(
        dag=[('keys=["page"]', 'keys=["pgae"]')],
        check="DAG file",
        text="table per_page: expected keys to be columns, found 'pgae'",
        hint="use some of delta, page",
    ),
    "combine by avg": Mistake(
        dag=[('"delta": "sum"', '"delta": "avg"')],
        check="DAG file",
        text="expected combine by sum, min or max, found 'delta' by 'avg'",
        hint="use one of the three",
    ),
    "column twice": Mistake(
        dag=[('Column("city"', 'Column("page"')],
        check="DAG file",
        text="expected unique column names, found 'page' twice",
        hint="remove or rename",
    ),
    "column with a leading underscore": Mistake(
        dag=[('Column("city"', 'Column("_offset"')],
        check="DAG file",
        text="expected no column name with a leading underscore, found '_offset'",
        hint="choose another name",
    ),
    "parse without a year": Mistake(
        dag=[('"timestamptz")', '"timestamptz", parse="%H:%M")')],
        check="DAG file",
        text="column 'time' of type timestamptz: the parse rule '%H:%M' has no year",
        hint="use iso8601",
    ),
    "decode as a text": Mistake(
        dag=[("decode=Json(COLUMNS)", 'decode="avro"')],
        check="DAG file",
        text="topic wikiticker: unknown decode='avro'",
        hint="use Json(",
    ),
    "nested source": Mistake(
        dag=[('"string", required=False)', '"string", required=False, source="geo.city")')],
        records=[RECORD.replace('"city"', '"geo.city"')],
        state="warning",
        check="fields",
        text="no record has the field 'geo.city', so column 'city' is null in every row",
        hint=r'did you mean source=r"geo\.city"?',
    ),
    "nested source of a required column": Mistake(
        dag=[('"string", required=False)', '"string", source="geo.city")')],
        records=[RECORD.replace('"city"', '"geo.city"'), RECORD.replace('"city"', '"geo.city"')],
        check="records",
        text="2 read: 0 decoded, 2 dead letters: a run would have no row",
        hint=r'The records have a field of that name: write source=r"geo\.city"',
    ),
    "warehouse without a prefix": Mistake(
        dag=[("WAREHOUSE", "s3://lake")],
        check="DAG file",
        text="warehouse: expected s3://bucket/prefix, found 's3://lake'",
        hint="use e.g. s3://lake/wiki",
    ),
    "s3a": Mistake(
        dag=[("WAREHOUSE", "s3a://lake/wiki")],
        check="DAG file",
        text="warehouse: expected s3://bucket/prefix, found 's3a://lake/wiki'",
        hint="use e.g. s3://lake/wiki",
    ),
    "absolute job": Mistake(
        dag=[('"spark_jobs/wiki.py"', '"/srv/wiki.py"')],
        check="DAG file",
        text="job: expected a relative path inside the project, found '/srv/wiki.py'",
        hint="use e.g.",
    ),
    "argument of Pipeline left out": Mistake(
        dag=[('    job="spark_jobs/wiki.py",\n', "")],
        check="DAG file",
        text="line 12: `pipeline = Pipeline(`: TypeError: Pipeline.__init__() missing 1 required",
        hint="correct the line",
    ),
    "syntax error in the DAG file": Mistake(
        dag=[("COLUMNS = [", "COLUMNS = [[")],
        check="DAG file",
        text="line 6: `COLUMNS = [[`: '[' was never closed",
        hint="correct the line",
    ),
    "import error in the DAG file": Mistake(
        dag=[("from datetime import UTC", "import pandsa\nfrom datetime import UTC")],
        check="DAG file",
        text="line 1: `import pandsa`: ModuleNotFoundError: No module named 'pandsa'",
        hint="install pandsa",
    ),
    # ------------------------------------------------------------ the schedule
    "no schedule": Mistake(
        dag=[('    schedule="@hourly",\n', "")],
        check="schedule",
        text="replay_dag: expected the argument 'schedule', found none",
        hint="schedule='@daily'",
    ),
    "schedule @houly": Mistake(
        dag=[("@hourly", "@houly")],
        check="schedule",
        text="schedule='@houly' is not a cron expression",
        hint="did you mean '@hourly'?",
    ),
    "schedule @once": Mistake(
        dag=[("@hourly", "@once")],
        check="schedule",
        text="schedule='@once': the data interval of its one run is empty",
        hint="use schedule=None",
    ),
    "start without a zone": Mistake(
        dag=[("12, tzinfo=UTC)", "12)")],
        check="schedule",
        text="start_date 2015-09-12 00:00:00 has no time zone",
        hint="tzinfo=UTC",
    ),
    "thousands of runs": Mistake(
        dag=[("    end_date=datetime(2015, 9, 12, 23, tzinfo=UTC),\n", "")],
        state="warning",
        check="schedule",
        text="unpausing it now starts more than 9,999 runs: catchup=True and no end_date",
        hint="set catchup=False",
    ),
    "no DAG": Mistake(
        dag=[("dag = replay_dag(", "def make():\n  return replay_dag(")],
        check="schedule",
        text="the file declares pipeline wiki and no DAG of it",
        hint="assign the result of replay_dag",
    ),
    # ------------------------------------------------------------ the job
    "job moved": Mistake(
        dag=[("spark_jobs/wiki.py", "jobs/wiki.py")],
        check="job",
        text="the job of pipeline wiki is 'jobs/wiki.py', and",
        hint="deploy the job file",
    ),
    "syntax error in the job": Mistake(
        job=[("edits = records", "edits = = records")],
        check="job",
        text="line 7, is not valid Python: invalid syntax: `edits = = records`",
        hint="correct the job",
    ),
    "import error in the job": Mistake(
        job=[("import pyarrow as pa", "import pyarow as pa")],
        check="job",
        text="line 1: `import pyarow as pa`: ModuleNotFoundError: No module named 'pyarow'",
        hint="install pyarow",
    ),
    "no run(...)": Mistake(
        job=[("    run(transform)", "    print(transform)")],
        check="job",
        text="calls neither run nor run_dataframe",
        hint="run(transform)",
    ),
    "a column is missing": Mistake(
        job=[
            ("edits = records", 'edits = records.drop_columns("delta")'),
            ("edits.group_by", "records.group_by"),
        ],
        check="transform",
        text="table 'edits': expected column 'delta' of type long, found none",
        others=["edits     delta             long         -            <- differs"],
    ),
    "string for long": Mistake(
        job=[
            (
                "edits = records",
                'edits = records.set_column(1, "delta", records["delta"].cast("string"))',
            ),
            ("edits.group_by", "records.group_by"),
        ],
        check="transform",
        text="table 'edits', column 'delta': expected long, found string",
        others=["edits     delta             long         string       <- differs"],
    ),
    "an extra column": Mistake(
        job=[("edits = records", 'edits = records.append_column("more", records["page"])')],
        check="transform",
        text="table 'edits': expected only declared columns, found 'more'",
    ),
    "null in a required column": Mistake(
        job=[
            (
                "edits = records",
                'edits = records.set_column(0, "page", pa.nulls(len(records), "string"))',
            )
        ],
        check="transform",
        text="required column 'page': expected no nulls, found 4",
    ),
    "lineage dropped": Mistake(
        job=[('{"edits": edits', '{"edits": edits.drop_columns("_offset")')],
        check="transform",
        text="table 'edits': expected column '_offset' of type long, found none",
    ),
    "a table is misnamed": Mistake(
        job=[('{"edits"', '{"edit"')],
        check="transform",
        text="expected the declared tables edits, per_page from the transform, found edit, per_page",
    ),
    "KeyError in the transform": Mistake(
        job=[("edits = records", 'edits = records["pages"] and records')],
        check="transform",
        text='line 7: `edits = records["pages"] and records`: job spark_jobs/wiki.py',
        others=["the transform raised KeyError"],
    ),
    # ------------------------------------------------------------ connection and lake
    "connection not defined": Mistake(
        kafka=True,
        check="connection",
        text="Kafka connection 'default' is not defined",
        hint="set TALLYSTICK_KAFKA_DEFAULT",
    ),
    "warehouse of another pipeline": Mistake(
        lake="orders",
        check="lake",
        text="expected the lake of pipeline 'wiki', found that of 'orders'",
        hint="give each pipeline a warehouse of its own; or, if 'orders' is the old name",
    ),
    "two pipelines with one warehouse in a file": Mistake(
        dag=[
            (
                "dag = replay_dag(",
                'other = Pipeline(name="other", topics=["t"], warehouse=pipeline.warehouse, '
                'job="spark_jobs/wiki.py", tables=[Table("t", columns=COLUMNS)])\n'
                "dag = replay_dag(",
            )
        ],
        sample=False,
        check="warehouse",
        text="pipelines wiki and other share memory://check-",
        hint="give each pipeline a warehouse of its own",
    ),
    "long to int": Mistake(
        lake="wiki",
        dag=[
            (
                'Column("delta", "long"),\n    Column("time"',
                'Column("delta", "int"),\n    Column("time"',
            )
        ],
        check="lake",
        text="table edits: column 'delta': expected delta long as in the lake, found delta int",
    ),
    "a required column is renamed": Mistake(
        lake="wiki",
        dag=[
            (
                '    Column("page", "string"),\n    C',
                '    Column("title", "string", source="page"),\n    C',
            )
        ],
        check="lake",
        text="table edits: column 'page' is required in the lake but no longer declared",
    ),
    "a required column is dropped": Mistake(
        lake="wiki",
        dag=[('    Column("delta", "long"),\n    Column("time"', '    Column("time"')],
        check="lake",
        text="table edits: column 'delta' is required in the lake but no longer declared",
    ),
    "a rename from a misspelt name": Mistake(
        lake="wiki",
        dag=[
            (
                'Column("delta", "long"),\n    Column("time"',
                'Column("change", "long", renamed_from="dleta", source="delta"),\n    Column("time"',
            )
        ],
        check="lake",
        text="table edits: column 'change': expected renamed_from a column of the lake, found 'dleta'",
        hint="use one of",
    ),
    "an optional column is dropped": Mistake(
        lake="wiki",
        dag=[('    Column("city", "string", required=False),\n', "")],
        state="warning",
        check="lake",
        text="table edits: city of the lake is not declared, so it is null in new rows",
    ),
    # ------------------------------------------------------------ the records
    "Avro read as JSON": Mistake(
        records=[AVRO] * 4,
        check="records",
        text="4 read: 0 decoded, 4 dead letters: a run would have no row",
        hint="4 values have Confluent's wire format (byte 0, then the id of a schema in the registry: 7)",
    ),
    "wrong parse rule": Mistake(
        dag=[('"timestamptz")', '"timestamptz", parse="%Y-%m-%d %H:%M:%SZ")')],
        check="records",
        text="4 read: 0 decoded, 4 dead letters: a run would have no row",
        hint='Column("time", "timestamptz") reads the values of time',
    ),
    "nested object as string": Mistake(
        records=[RECORD, RECORD.replace('"Rome"', '{"name": "Rome"}')],
        state="warning",
        check="records",
        text="2 read: 1 decoded, 1 dead letters",
        hint='Column("city", "string", parse="json") reads the values of city',
    ),
    "long for a fraction": Mistake(
        records=[RECORD.replace("7", "7.5"), RECORD],
        state="warning",
        check="records",
        text="2 read: 1 decoded, 1 dead letters",
        hint='Column("delta", "double") reads the values of delta',
    ),
    "required and missing": Mistake(
        records=[RECORD, '{"page": "P", "time": "2015-09-12T00:46:58.771Z"}'],
        state="warning",
        check="records",
        text="2 read: 1 decoded, 1 dead letters",
        hint="declare column 'delta' with required=False",
    ),
    "a field that no record has": Mistake(
        dag=[
            (
                '"city", "string", required=False)',
                '"town", "string", required=False, source="ctiy")',
            )
        ],
        state="warning",
        check="fields",
        text="no record has the field 'ctiy', so column 'town' is null in every row",
        hint="did you mean source='city'?",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_found_before_a_run(name: str, tmp_path: Path) -> None:
    mistake = MISTAKES[name]
    result = run_check(tmp_path, mistake)
    found = [
        part
        for part in findings(result.stdout)
        if part.startswith(f"{mistake.state} {mistake.check} ") and flat(mistake.text) in part
    ]
    assert found, result.stdout + result.stderr
    assert flat(mistake.hint) in found[0]
    for other in mistake.others:
        assert flat(other) in found[0]
    assert result.exit_code == (1 if mistake.state == "FAIL" else 0)
    assert too_wide(result.stdout) == []


def flat(text: str) -> str:
    return " ".join(text.split())


def findings(output: str) -> list[str]:
    """Return each finding as one line."""
    found: list[str] = []
    for line in output.splitlines():
        if line and not line.startswith(" "):
            found.append(line)
        elif found:
            found[-1] += f" {line}"
    return [flat(one) for one in found]


GOOD = Mistake(check="", text="")


def test_a_good_pipeline_has_no_problem(tmp_path: Path) -> None:
    result = run_check(tmp_path, GOOD)
    assert result.exit_code == 0, result.stdout
    states = [line.split("  ")[0] for line in result.stdout.splitlines() if line[:1].strip()]
    assert "FAIL" not in states
    assert "warning" not in states
    assert "rows by table: edits 4, per_page 1" in result.stdout
    assert "unpausing it now starts 24 runs" in flat(result.stdout)
    assert result.stdout.endswith("0 problems, 0 warnings, 2 not checked.\n")


def test_all_mistakes_of_a_file_are_found_in_one_pass(tmp_path: Path) -> None:
    several = Mistake(
        dag=[("@hourly", "@houly"), ("2015-09", "2015-09")][:1],
        job=[('{"edits"', '{"edit"')],
        records=[RECORD, "no JSON"],
        lake="orders",
        check="",
        text="",
    )
    result = run_check(tmp_path, several, "--json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    states = {(one["check"], one["state"]) for one in answer["findings"]}
    assert {
        ("schedule", "FAIL"),
        ("job", "ok"),
        ("lake", "FAIL"),
        ("records", "warning"),
        ("transform", "FAIL"),
    } <= states
    assert (answer["ok"], answer["problems"], answer["warnings"]) == (False, 3, 1)


def test_a_dataframe_job_is_decoded_and_not_called(tmp_path: Path) -> None:
    frames = Mistake(
        job=[("import run", "import run_dataframe"), ("    run(", "    run_dataframe(")],
        check="",
        text="",
    )
    result = run_check(tmp_path, frames)
    assert result.exit_code == 0
    assert "its records were decoded, its transform was not called" in flat(result.stdout)
    assert "4 read: 4 decoded" in result.stdout


def test_nothing_is_written_without_probe_and_scratch_objects_are_deleted_with_it(
    tmp_path: Path,
) -> None:
    result = run_check(tmp_path, GOOD, "--probe")
    assert "conditional writes work" in result.stdout
    warehouse = f"memory://{result.stdout.split('memory://')[1].split()[0]}"
    assert list(open_store(warehouse).list("")) == []


def test_what_is_no_python_file_or_no_sample_is_refused(tmp_path: Path) -> None:
    assert tally("check", str(tmp_path / "none.py")).exit_code == 77
    dag, _ = project(tmp_path, GOOD)
    result = tally("check", str(dag), "--offline", "--sample", "other=/none")
    assert result.exit_code == 77
    assert "--sample: expected a file of one of the topics wikiticker" in flat(result.stderr)


def test_several_pipelines_of_a_file_are_checked_each(tmp_path: Path) -> None:
    second = (
        'other = Pipeline(name="other", topics=["wikiticker"], warehouse="WAREHOUSE-2", '
        'job="spark_jobs/none.py", tables=[Table("t", columns=COLUMNS)])\n'
        "dag = replay_dag("
    )
    result = run_check(tmp_path, Mistake(dag=[("dag = replay_dag(", second)], check="", text=""))
    assert "declares wiki, other" in result.stdout
    _, head, rest = result.stdout.partition("\npipeline other\n")
    assert head
    assert [part.split(" the ")[0] for part in findings(rest) if part.startswith("FAIL")] == [
        "FAIL schedule",
        "FAIL job",
    ]


@pytest.mark.parametrize("file", sorted((PROJECT / "dags").rglob("*.py")), ids=lambda f: f.stem)
def test_the_pipelines_of_this_project_have_no_problem(file: Path) -> None:
    result = tally("check", str(file), "--offline")
    assert result.exit_code == 0, result.stdout
    assert "0 problems, 0 warnings, " in result.stdout
    checked = (
        "has a DAG and no pipeline" if file.stem in ("lake_gc", "lake_compact") else "calls run"
    )
    assert checked in flat(result.stdout)


def test_a_file_that_declares_nothing_is_a_problem(tmp_path: Path) -> None:
    file = tmp_path / "empty.py"
    file.write_text("x = 1")
    result = tally("check", str(file))
    assert result.exit_code == 1
    assert "empty.py declares no pipeline" in result.stdout


def test_without_airflow_all_but_the_schedule_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "airflow_is_installed", lambda: False)
    result = run_check(tmp_path, Mistake(dag=[("@hourly", "@houly")], check="", text=""))
    assert result.exit_code == 0
    assert "not checked schedule Airflow is not installed" in flat(result.stdout)
    assert "rows by table: edits 4, per_page 1" in result.stdout


def test_what_the_job_prints_is_not_in_the_answer(tmp_path: Path) -> None:
    loud = Mistake(
        dag=[("dag = replay_dag(", "print('declared')\ndag = replay_dag(")],
        job=[("    edits = records", "    print('called')\n    edits = records")],
        check="",
        text="",
    )
    result = run_check(tmp_path, loud, "--json")
    assert json.loads(result.stdout)["ok"]
    assert "declared\ncalled\n" in result.stderr


def test_a_job_is_stopped_where_it_would_start_spark(tmp_path: Path) -> None:
    after = Mistake(
        job=[("    run(transform)", '    run(transform)\n    raise SystemExit("after run")')],
        check="",
        text="",
    )
    assert run_check(tmp_path, after).exit_code == 0
