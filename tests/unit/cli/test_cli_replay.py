"""`tally replay` on real files, with a log in memory: its answers, refusals, exit codes, and how it is continued."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from support.fakes import FakeLog
from support.log_reading import ENVIRON, OpenedLog, use_log
from support.small_lake import TOPIC, day, fill
from tallystick.cli.loading import load_pipeline
from tallystick.format.interval import Interval
from tallystick.lake import Lake
from tallystick.operations.release import release
from tallystick.runtime import system_runtime
from tallystick.store.open import open_store
from unit.cli.invoke import tally, too_wide

DAG = """\
from datetime import UTC, datetime

from tallystick import Column, Json, Pipeline, Table, Topic
from tallystick.airflow import compact_dag, gc_dag, replay_dag

COLUMNS = [Column("n", "long"), Column("kind", "string", required=False)]
pipeline = Pipeline(
    name="small",
    topics=[Topic("events", decode=Json(COLUMNS))],
    warehouse="WAREHOUSE",
    job="spark_jobs/small.py",
    tables=[
        Table("events", columns=COLUMNS),
        Table("per_kind", columns=COLUMNS[::-1], keys=["kind"], combine={"n": "sum"}),
    ],
)
dag = replay_dag(pipeline, schedule="@daily", start_date=datetime(2013, 1, 1, tzinfo=UTC))
"""
JOB = """\
from tallystick.spark import run


def transform(records):
    print("called")
    sums = records.group_by("kind").aggregate([("n", "sum")]).rename_columns(["kind", "n"])
    return {"events": records, "per_kind": sums}


if __name__ == "__main__":
    run(transform)
"""
FRAMES = JOB.replace("import run", "import run_dataframe").replace("    run(", "    run_dataframe(")
DAYS = ("--from", "2013-01-01", "--to", "2013-01-04")
RUN = "tally__20130101T000000000Z__20130104T000000000Z"


@dataclass
class Project:
    """A project of one pipeline, its log, and its lake."""

    folder: Path
    warehouse: str
    log: FakeLog
    opened: OpenedLog

    def write(self, *, dag: str = DAG, job: str = JOB) -> None:
        """Write the two files."""
        for name, text in (("dags", dag), ("spark_jobs", job)):
            (self.folder / name).mkdir(exist_ok=True)
            (self.folder / name / "small.py").write_text(text.replace("WAREHOUSE", self.warehouse))

    def replay(self, *options: str, span: tuple[str, ...] = DAYS) -> Result:
        """Run the command on the DAG file."""
        result = tally("replay", "dags/small.py", *span, *options)
        assert "--json" in options or too_wide(result.stdout) == []
        return result

    def answer(self, *options: str, code: int = 0) -> Any:
        """Return the JSON of the command."""
        result = self.replay("--json", *options)
        assert result.exit_code == code, result.stderr
        return json.loads(result.stdout)

    def written(self) -> list[str]:
        """Return the keys of the lake."""
        return [listed.key for listed in open_store(self.warehouse).list("")]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    log = FakeLog()
    fill(log)
    made = Project(
        folder=tmp_path,
        warehouse=f"memory://replay-{uuid.uuid4().hex[:20]}",
        log=log,
        opened=use_log(monkeypatch, log),
    )
    made.write()
    return made


def flat(text: str) -> str:
    return " ".join(text.split())


# ---------------------------------------------------------------- answers


def test_a_span_is_committed_and_a_repeat_reports_that_it_was(project: Project) -> None:
    result = project.replay()
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert flat(result.stdout).startswith(
        f"small at {project.warehouse}, version 3, run small / {RUN}"
    )
    at = lines.index("2013-01-01 to 2013-01-04: committed, version 3, generation 1")
    assert lines[at + 1 : at + 3] == [
        "  15 records, 6 dead letters, 2 aborted, 2 control",
        "  dead_letters 6 rows, events 15 rows, per_kind 2 rows",
    ]
    assert re.fullmatch(r"1 interval committed, in \d+\.\d s\.", lines[-1])
    assert "called" not in result.stdout, "what the job prints is not in the answer"
    again = project.replay()
    assert again.exit_code == 0
    assert (
        f"2013-01-01 to 2013-01-04: was committed already, version 3, generation 1, by small / {RUN}"
        in flat(again.stdout)
    )
    assert "0 intervals committed, 1 committed already, in" in again.stdout
    assert "another job" not in again.stdout
    assert tally("verify", project.warehouse, "--deep").exit_code == 0


def test_the_answer_as_json(project: Project) -> None:
    answer = project.answer()
    assert answer.pop("elapsed_s") > 0
    run = {"dag": "small", "run": RUN, "clear": 0}
    assert answer == {
        "lake": project.warehouse,
        "pipeline": "small",
        "version": 3,
        "from": "2013-01-01T00:00:00.000Z",
        "to": "2013-01-04T00:00:00.000Z",
        "run": run,
        "complete": True,
        "intervals": [
            {
                "from": "2013-01-01T00:00:00.000Z",
                "to": "2013-01-04T00:00:00.000Z",
                "state": "committed",
                "version": 3,
                "generation": 1,
                "totals": {
                    "records": 15,
                    "dead_letters": 6,
                    "aborted": 2,
                    "control": 2,
                    "absent": 0,
                    "lost": 0,
                    "offsets": 25,
                },
                "rows": {"dead_letters": 6, "events": 15, "per_kind": 2},
                "owner": run,
                "other_code": False,
            }
        ],
        "publish": [],
    }
    again = project.answer()["intervals"][0]
    assert (again["state"], again["rows"]) == ("already", None)


def test_what_another_run_holds_ends_with_75_and_take_over_commits_it(project: Project) -> None:
    hold(project)
    result = project.replay()
    assert result.exit_code == 75
    assert "2013-01-02 to 2013-01-03: NOT COMMITTED: held by another run, small / theirs" in flat(
        result.stdout
    )
    assert "2 intervals committed, 1 not committed, in" in result.stdout
    assert "Next: repeat the command later" in result.stdout
    held = project.answer(code=75)
    assert not held["complete"]
    assert [one["state"] for one in held["intervals"]] == ["already", "held", "already"]
    taken = project.answer("--take-over")
    assert [one["state"] for one in taken["intervals"]] == ["already", "committed", "already"]


def hold(project: Project) -> None:
    """Let another run plan day 2, and stage nothing."""
    (project.folder / "spark_jobs" / "small.py").write_text(JOB.replace("    print", "    1 / 0 #"))
    span = ("--from", "2013-01-02", "--to", "2013-01-03")
    assert project.replay("--run", "theirs", span=span).exit_code == 77
    project.write()


def test_a_grant_that_is_lost_meanwhile_ends_with_76_after_the_answer(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(open_store(project.warehouse), system_runtime(), proven=True)
    project.write(job=JOB.replace("    print", "    import builtins; builtins.lose(); print"))
    spans = [Interval(start=day(1), end=day(4))]

    def lose() -> None:
        if spans:
            release(lake, spans.pop())

    monkeypatch.setattr("builtins.lose", lose, raising=False)
    result = project.replay()
    assert result.exit_code == 76
    assert "NOT COMMITTED, and not granted to any run" in result.stdout
    assert "repeat the command with another --run NAME" in flat(result.stderr)
    project.write()
    assert project.replay().exit_code == 0, "the ledger has nothing of the run: it is planned anew"


# ---------------------------------------------------------------- the run and its name


def test_a_replacement_prints_the_name_by_which_it_is_continued(project: Project) -> None:
    project.replay()
    first = project.replay("--mode", "replace")
    assert "generation 2" in first.stdout
    (name,) = re.findall(rf"^Run ({RUN}__replace__\S+)\. To continue it, ", first.stderr, re.M)
    assert f"repeat the command with --run {name}." in flat(first.stderr)
    again = project.replay("--mode", "replace", "--run", name)
    assert "was committed already" in again.stdout
    assert "Run tally" not in again.stderr
    assert "generation 3" in project.replay("--mode", "replace").stdout


@pytest.mark.parametrize("option", ["accept-loss", "accept-compaction", "accept-dead-letters"])
def test_each_switch_reaches_the_plan_and_the_name_of_the_run(
    project: Project, option: str
) -> None:
    switch = option.replace("-", "_")
    answer = project.answer(f"--{option}")
    assert answer["run"]["run"] == f"{RUN}__{switch}"
    (plan,) = [key for key in project.written() if key.startswith("plans/")]
    found = open_store(project.warehouse).get(plan)
    assert found is not None
    assert json.loads(found.body)[switch] is True


def test_lost_records_are_refused_and_the_hint_has_the_option(project: Project) -> None:
    project.replay(span=("--from", "2013-01-01", "--to", "2013-01-02"))
    for partition in range(2):
        project.log.expire(TOPIC, partition, before=8)
    refused = project.replay()
    assert refused.exit_code == 77
    assert "As options of this command: --accept-loss, --take-over." in flat(refused.stderr)
    assert project.answer("--accept-loss")["intervals"][1]["totals"]["lost"] > 0


def test_a_job_that_failed_is_corrected_and_replayed_with_take_over(project: Project) -> None:
    project.write(job=JOB.replace('    print("called")', "    1 / 0"))
    failed = project.replay()
    assert failed.exit_code == 77
    assert "the transform raised ZeroDivisionError" in flat(failed.stderr)
    project.write()
    changed = project.replay()
    assert changed.exit_code == 77
    assert changed.stderr.startswith("job_changed: ")
    assert "repeat the command with --take-over and without --run" in flat(changed.stderr)
    assert project.answer("--take-over")["complete"]
    assert project.answer()["intervals"][0]["state"] == "already"


def test_what_other_code_committed_is_left_and_the_answer_names_the_option(
    project: Project,
) -> None:
    project.replay()
    project.write(job=f"{JOB}\n# another version\n")
    result = project.replay()
    assert result.exit_code == 0
    assert "by another job or declaration than those of the file: --mode replace" in flat(
        result.stdout
    )
    assert project.answer()["intervals"][0]["other_code"]


def test_an_interrupt_prints_how_to_continue(project: Project) -> None:
    project.write(job=JOB.replace('    print("called")', "    raise KeyboardInterrupt"))
    for options, again in (
        ((), "Interrupted. Repeat the command to continue."),
        (("--take-over",), f"Interrupted. To continue it, repeat the command with --run {RUN}"),
    ):
        result = project.replay(*options)
        assert (result.exit_code, "Traceback" in result.stderr) == (130, False)
        assert again in flat(result.stderr)
    unavailable = 'from tallystick.errors import StoreUnavailable as E; raise E("x", hint="y.")'
    project.write(job=JOB.replace('    print("called")', f"    {unavailable}"))
    retried = project.replay("--take-over")
    assert retried.exit_code == 75
    assert f"Next: y. To continue it, repeat the command with --run {RUN}" in flat(retried.stderr)


def test_with_json_an_error_is_alone_on_standard_error(project: Project) -> None:
    project.write(job=JOB.replace('    print("called")', "    1 / 0"))
    result = project.replay("--json", "--take-over")
    assert (result.exit_code, result.stdout) == (77, "")
    assert json.loads(result.stderr)["error"]["kind"] == "invalid_pipeline"


# ---------------------------------------------------------------- the files


def assert_refused(project: Project, message: str, *options: str, code: int = 77) -> str:
    """Assert that the command is refused with this text, and writes nothing; return its whole text."""
    result = project.replay(*options)
    text = flat(result.stderr)
    assert result.exit_code == code, text
    assert message in text
    assert "Next: " in text
    assert (result.stdout, project.written()) == ("", [])
    return text


def test_an_environment_without_the_extra_engine_is_refused(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tallystick.cli.replay._ENGINE", ("numpy", "no_such_package"))
    error = assert_refused(project, "found no no_such_package")
    assert "pip install 'tallystick[engine]'" in error


@pytest.mark.parametrize(
    "job", [FRAMES, "raise ModuleNotFoundError(\"No module named 'pyspark'\", name='pyspark')\n"]
)
def test_a_job_that_needs_spark_is_refused(project: Project, job: str) -> None:
    project.write(job=job)
    text = assert_refused(project, "the job spark_jobs/small.py computes with Spark")
    assert "run the pipeline's DAG in Airflow, or write the job with `run` (Arrow)." in text


def test_errors_of_the_files_have_their_place(project: Project) -> None:
    project.write(dag=DAG.replace("dag = ", "1 / 0\ndag = "))
    assert_refused(project, "dags/small.py, line 17: `1 / 0`: ZeroDivisionError")
    project.write(job=JOB.replace("import run", "import rum"))
    assert_refused(project, "spark_jobs/small.py, line 1")
    project.write(dag=DAG.replace("spark_jobs/small.py", "spark_jobs/none.py"))
    assert_refused(project, "spark_jobs/none.py is not a file")
    project.write(dag="x = 1\n")
    assert_refused(project, "dags/small.py declares no pipeline")


def test_one_of_several_pipelines_is_chosen_by_its_name(project: Project) -> None:
    second = 'from dataclasses import replace\nother = replace(pipeline, name="other")\n'
    project.write(dag=f"{DAG}{second}")
    assert_refused(project, "expected one pipeline, found other, small.")
    assert_refused(project, "expected a pipeline 'none', found other, small.", "--pipeline", "none")
    assert project.answer("--pipeline", "other")["pipeline"] == "other"


def test_the_id_of_the_dag_and_the_root_of_the_job_are_those_of_replay_dag(
    project: Project,
) -> None:
    elsewhere = project.folder / "elsewhere"
    project.write(
        dag=DAG.replace("(pipeline, ", f'(pipeline, dag_id="daily", job_root="{elsewhere}", ')
    )
    (project.folder / "spark_jobs").rename(elsewhere)
    project.write(
        job="raise ValueError('not this one')",
        dag=(project.folder / "dags" / "small.py").read_text(),
    )
    assert_refused(project, f"the job of pipeline small is 'spark_jobs/small.py', and {elsewhere}")
    (elsewhere / "spark_jobs").mkdir()
    (elsewhere / "small.py").rename(elsewhere / "spark_jobs" / "small.py")
    assert project.answer()["run"]["dag"] == "daily"


def test_a_pipeline_without_a_dag_has_its_own_name_as_the_dag(project: Project) -> None:
    project.write(dag=DAG.partition("dag = ")[0])
    assert project.answer()["run"]["dag"] == "small"


def test_outputs_outside_the_lake_are_left_to_tally_publish(project: Project) -> None:
    output = 'outputs=[FileOutput(name="feed", table="events", folder="out")],\n    tables'
    source = DAG.replace("    tables", f"    {output}", 1).replace(
        "from tallystick.airflow",
        "from tallystick.outputs.files import FileOutput\nfrom tallystick.airflow",
    )
    project.write(dag=source)
    result = project.replay()
    assert result.exit_code == 0, result.stderr
    command = f"tally publish {project.warehouse} --pipeline dags/small.py"
    assert (
        f"Outputs outside the lake are not published by this command:\n  {command}" in result.stdout
    )
    assert project.answer()["publish"] == command.split()
    assert not (project.folder / "out").exists()


def test_what_cannot_be_requested_is_refused(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert project.replay("--mode", "refresh").exit_code == 2
    assert_refused(project, "--run: expected a run id, found ''.", "--run", "")
    late = project.replay(span=("--from", "2013-01-01", "--to", "2999-01-01"))
    assert late.exit_code == 77
    assert "records of the future cannot be replayed" in flat(late.stderr)
    monkeypatch.delenv("TALLYSTICK_KAFKA_DEFAULT")
    assert_refused(project, "Kafka connection 'default' is not defined")


def test_the_files_are_loaded_without_airflow_and_spark(project: Project) -> None:
    others = 'gc, compact = (one({"small": pipeline.warehouse}) for one in (gc_dag, compact_dag))\n'
    project.write(dag=f"{DAG}{others}")
    code = """
        import sys
        from pathlib import Path
        from tallystick.cli import replay_run
        found = replay_run.load_pipeline(Path("dags/small.py"), None)
        replay_run._arrow_transform(Path("spark_jobs/small.py"))
        print(found.dag_id, [name for name in ("airflow", "pyspark", "kafka", "pyiceberg") if name in sys.modules])
    """
    lines = "\n".join(line.strip() for line in code.splitlines())
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True)
    assert done.stdout == "small []\n"


def test_a_loaded_pipeline_is_the_only_one_of_its_dags(project: Project) -> None:
    first = DAG.replace("(pipeline, ", '(pipeline, dag_id="a", ')
    twice = 'again = replay_dag(pipeline, dag_id="b", schedule=None, start_date=datetime(2013, 1, 1, tzinfo=UTC))\n'
    project.write(dag=f"{first}{twice}")
    assert load_pipeline(Path("dags/small.py"), None).dag_id == "a"
