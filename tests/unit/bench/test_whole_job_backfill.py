"""The backfill: its intervals are the hours of the records, and its ratios are to the better plain Spark."""

from __future__ import annotations

import inspect
import json
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from bench.whole_job.backfill.by_name import CONTENDERS, contenders_of
from bench.whole_job.backfill.intervals import intervals_of
from bench.whole_job.backfill.report import WHAT, text_report
from bench.whole_job.backfill.tallystick import BackfillTallystick
from bench.whole_job.backfill.tallystick_tasks import (
    BackfillOrder,
    request_of,
    stage_intervals,
)
from bench.whole_job.bundle import main, sealed, write_bundle
from bench.whole_job.contender import (
    BenchEndpoints,
    BenchJob,
    BenchPlace,
    BenchWorkspace,
    step_kind,
)
from bench.whole_job.contenders.tallystick_tasks import commit_staged
from bench.whole_job.page import page
from bench.whole_job.places import PARTITIONS
from bench.whole_job.records import FROM_MS, HOUR_MS, FilledTopic, clicks
from bench.whole_job.rounds import job_of, small_job
from support.fakes import stage
from support.small_lake import SmallLake, day, days
from tallystick.airflow import replay_dag
from tallystick.format import keys
from tallystick.spark.arguments import parse_arguments

REPO = Path(__file__).parents[3]
HOURS, EACH = 5, 1_003  # not a multiple of the partitions


def topic(hours: int = HOURS, each: int = EACH) -> FilledTopic:
    records = hours * each
    return FilledTopic(
        topic="clicks",
        ends=tuple(len(range(p, records, PARTITIONS)) for p in range(PARTITIONS)),
        broken=0,
        value_bytes=0,
        sha256="",
        expected=Path(),
        hours=hours,
    )


def job() -> BenchJob:
    return job_of(topic(), "one")


def test_the_offsets_of_an_interval_are_those_of_the_records_with_timestamps_in_its_hour() -> None:
    expected: dict[int, set[tuple[int, int]]] = {hour: set() for hour in range(HOURS)}
    for batch in clicks(1, HOURS * EACH, hours=HOURS):
        for index, timestamp in enumerate(batch.timestamps):
            number = batch.first + index
            place = (number % PARTITIONS, number // PARTITIONS)
            expected[(timestamp - FROM_MS) // HOUR_MS].add(place)
    intervals = intervals_of(job())
    assert [one.number for one in intervals] == list(range(HOURS))
    for one in intervals:
        ranges = zip(one.starts, one.ends, strict=True)
        found = {
            (p, offset) for p, (start, end) in enumerate(ranges) for offset in range(start, end)
        }
        assert found == expected[one.number]
        assert (one.from_ms, one.to_ms) == (
            FROM_MS + one.number * HOUR_MS,
            FROM_MS + (one.number + 1) * HOUR_MS,
        )


def test_hours_change_only_the_timestamps() -> None:
    (short,), (long,) = (list(clicks(1, 2_000, hours=hours)) for hours in (1, 2))
    assert short.timestamps[-1] < FROM_MS + HOUR_MS <= long.timestamps[-1] < FROM_MS + 2 * HOUR_MS
    assert short.values != long.values
    for name in set(short.rows.column_names) - {"ts"}:
        assert short.rows[name].equals(long.rows[name])


def test_hours_with_different_numbers_of_records_are_refused() -> None:
    with pytest.raises(ValueError, match="expected a multiple of 5 records"):
        intervals_of(replace(job(), records=HOURS * EACH + 1))


@pytest.mark.parametrize(
    ("name", "kind"), [("plan-007", "plan"), ("plan", "plan"), ("a-b", "a-b"), ("-7", "")]
)
def test_a_step_with_a_number_is_of_the_kind_before_it(name: str, kind: str) -> None:
    assert step_kind(name) == kind


def test_contenders_are_chosen_by_their_whole_name() -> None:
    assert [one.name for one in contenders_of("spark-loop,tallystick")] == [
        "spark-loop",
        "tallystick",
    ]
    with pytest.raises(SystemExit, match="no contender is called 'spark'"):
        contenders_of("spark")


def test_every_contender_has_its_name_and_a_line_in_the_page() -> None:
    page = (REPO / "bench" / "README.md").read_text()
    for name, make in CONTENDERS.items():
        contender = make()
        assert contender.name == name
        assert contender.settings
        assert f"| `{name}` |" in page


def prepared(name: str, folder: Path) -> tuple[Any, BenchPlace]:
    (contender,) = contenders_of(name)
    endpoints = BenchEndpoints(
        bootstrap="127.0.0.1:1",
        s3_url="http://127.0.0.1:2",
        s3_access_key="key",
        s3_secret_key="secret",
        s3_region="region",
        bucket="bench",
    )
    # Only a contender without Spark makes nothing of its own in `prepare`.
    contender.prepare(
        BenchWorkspace(folder=folder, endpoints=endpoints, cores=2, warm_up=small_job(topic()))
    )
    place = BenchPlace(folder=folder / "place", prefix="runs/1")
    place.output.mkdir(parents=True)
    return contender, place


def test_together_one_process_plans_stages_and_commits_all_intervals(tmp_path: Path) -> None:
    contender, place = prepared("tallystick-without-spark", tmp_path)
    steps = list(contender.steps(job(), place))
    assert [step.name for step in steps] == ["plan", "stage", "commit"]
    assert all(step.argv[-2:] == ["0", str(HOURS)] for step in steps)
    assert json.loads((place.folder / "backfill.json").read_text())["together"] == HOURS


def test_tasks_are_a_process_for_each_plan_and_each_commit_in_order(tmp_path: Path) -> None:
    contender, place = prepared("tallystick-tasks-without-spark", tmp_path)
    numbers = [f"{n:03}" for n in range(HOURS)]
    assert [step.name for step in contender.steps(job(), place)] == [
        *(f"plan-{n}" for n in numbers),
        "stage",
        *(f"commit-{n}" for n in numbers),
    ]


def test_each_interval_is_committed_before_the_next_is_planned(tmp_path: Path) -> None:
    contender, place = prepared("tallystick-each-without-spark", tmp_path)
    names = []
    for step in contender.steps(job(), place):
        names.append(step.name)
        kind, _, number = step.name.partition("-")
        if kind == "plan":
            (place.folder / number / "plans.json").write_text(json.dumps([f"plan of {number}"]))
        elif kind == "stage":
            assert f"plan of {number}" in step.argv
            assert step.env["TALLYSTICK_RESULT_FILE"] == str(place.folder / number / "result.json")
    assert names == [f"{kind}-{n:03}" for n in range(HOURS) for kind in ("plan", "stage", "commit")]


def test_the_orders_of_the_intervals_have_their_hours(tmp_path: Path) -> None:
    contender, place = prepared("tallystick-without-spark", tmp_path)
    list(contender.steps(job(), place))
    orders = [
        json.loads((place.folder / f"{n:03}" / "order.json").read_text()) for n in range(HOURS)
    ]
    assert [(o["from_ms"], o["to_ms"]) for o in orders] == [
        (FROM_MS + n * HOUR_MS, FROM_MS + (n + 1) * HOUR_MS) for n in range(HOURS)
    ]


def test_every_interval_is_of_a_run_of_its_own() -> None:
    requests = [request_of(n) for n in range(HOURS)]
    assert len({one.run for one in requests}) == HOURS
    assert len({one.dag for one in requests}) == 1


@dataclass
class _Drivers:
    """In place of `subprocess.run`: a driver that stages the plans of its arguments with fakes."""

    small: SmallLake
    started: list[int] = field(default_factory=list)

    def __call__(self, words: list[str], *, env: dict[str, str], check: bool) -> None:
        assert check
        arguments = parse_arguments(words[2:])
        lake, log, attempt = self.small.lake, self.small.log, arguments.attempt
        (own,) = (one.key for one in arguments.plans)
        report = stage(lake, log, own, attempt=attempt)
        for other in arguments.others:
            key = keys.claimed_report(other.key, attempt)
            stage(lake, log, other.key, attempt=attempt, report_key=key)
        self.started.append(1 + len(arguments.others))
        result = [{"plan": own, "report": report}]
        Path(env["TALLYSTICK_RESULT_FILE"]).write_text(json.dumps(result))


@pytest.mark.parametrize(("together", "started"), [(1, [1, 1, 1]), (2, [2, 1]), (3, [3])])
def test_an_interval_that_an_earlier_driver_has_staged_starts_none_and_all_are_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int, started: list[int]
) -> None:
    small = SmallLake(dag=request_of(0).dag)
    for number in range(3):
        (one,) = small.plan(days(number + 1, number + 2), run=request_of(number).run).intervals
        plan = small.lake.plan(one.plan)
        assert plan is not None
        own = tmp_path / f"{number:03}"
        own.mkdir()
        refs = [f"{small.lake.where(plan.key)}@{plan.sha256}"]
        (own / "plans.json").write_text(json.dumps(refs))
    drivers = _Drivers(small)
    monkeypatch.setattr(subprocess, "run", drivers)
    order = BackfillOrder(
        warehouse=small.store.uri, program=["driver"], extra=[], together=together
    )
    stage_intervals(small.lake, order, tmp_path, range(3))
    assert drivers.started == started
    commit_staged(small.lake, [tmp_path / f"{number:03}" for number in range(3)])
    ledger = small.lake.read(lambda snapshot: snapshot.ledger(day(1), day(4)))
    assert [entry.committed is not None for entry in ledger.entries] == [True] * 3


def test_the_default_number_of_intervals_staged_together_is_that_of_the_product() -> None:
    default = inspect.signature(replay_dag).parameters["stage_together"].default
    assert BackfillTallystick("best", together=default).name in CONTENDERS


def _run(contender: str, cpu_s: float, *names: str, number: int = 1) -> dict[str, Any]:
    step = {
        "main": True,
        "exit_code": 0,
        "cpu_s": cpu_s / len(names),
        "wall_s": 1.0,
        "memory_bytes": 500 << 20,
        "cached_bytes": 0,
        "servers_s": 1.0,
        "foreign_s": 0.0,
        "stolen_s": 0.0,
    }
    return {
        "round": number,
        "size": "full",
        "case": "one",
        "contender": contender,
        "steps": [{"name": name, **step} for name in names],
        "s3": {"requests": {"PUT": 1_000}, "kinds": {}, "received": 1, "sent": 1},
        "rest_bytes": 123_456_789,
        "ok": True,
        "problems": [],
    }


def _bundle(*runs: dict[str, Any]) -> dict[str, Any]:
    return sealed(
        {
            "what": WHAT,
            "date": "2026-01-01",
            "machine": {
                "cores": 2,
                "cpu": "a CPU",
                "memory_gb": 8,
                "commit": "c" * 40,
                "changed": False,
            },
            "settings": {"seed": 1, "rounds": 2, "intervals": 2, "interval_records": 20_000},
            "complete": True,
            "runs": list(runs),
        }
    )


def row_of(bundle: dict[str, Any], contender: str) -> list[str]:
    lines = [line.split() for line in text_report(bundle).splitlines()]
    return next(line for line in lines if line[:1] == [contender])


def test_ratios_are_to_the_better_plain_spark_of_the_same_round() -> None:
    bundle = _bundle(
        _run("spark-loop", 10.0, "job"),
        _run("spark-submits", 30.0, "job-000", "job-001"),
        _run("tallystick", 5.0, "plan", "stage", "commit"),
        _run("spark-loop", 40.0, "job", number=2),
        _run("spark-submits", 20.0, "job-000", "job-001", number=2),
        _run("tallystick", 5.0, "plan", "stage", "commit", number=2),
    )
    # 10 / 5 in the first round, 20 / 5 in the second one.
    assert "3.00" in row_of(bundle, "tallystick")
    assert "(2.00-4.00)" in row_of(bundle, "tallystick")


def test_a_plain_spark_whose_check_failed_is_no_base() -> None:
    failed = _run("spark-loop", 1.0, "job") | {"ok": False, "problems": ["events: none"]}
    bundle = _bundle(
        failed, _run("spark-submits", 30.0, "job-000"), _run("tallystick", 5.0, "stage")
    )
    assert "6.00" in row_of(bundle, "tallystick")


def test_the_steps_of_a_kind_are_summed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"{kind}-{n:03}" for n in range(2) for kind in ("plan", "stage", "commit")]
    bundle = _bundle(_run("tallystick-each", 12.0, *names), _run("spark-loop", 10.0, "job"))
    path = tmp_path / "bundle.json"
    write_bundle(path, bundle)
    assert main(path) == 0
    tables = capsys.readouterr().out
    by_step = tables.partition("CPU seconds by step:")[2]
    (line,) = (one for one in by_step.splitlines() if one.startswith("tallystick-each"))
    assert line.split() == ["tallystick-each", "4.0", "4.0", "4.0", "-", "6"]
    assert max(map(len, tables.splitlines()[1:-1])) <= 100


def test_the_page_has_both_tables_the_picture_and_the_settings() -> None:
    bundle = _bundle(
        _run("spark-loop", 10.0, "job"),
        _run("tallystick", 6.0, "plan", "stage", "commit"),
        _run("spark-submits", 30.0, "job-000", "job-001")
        | {"ok": False, "problems": ["a row is missing"]},
    )
    contenders = {"tallystick": {"what": "ours", "versions": {}, "settings": {"steps": "three"}}}
    text = page(bundle | {"contenders": contenders}, "backfill")
    assert "2 hourly intervals of 20,000 records, one table" in text
    assert "](backfill-cost.svg)" in text
    # One run each: no spread.
    assert "| tallystick | 6.0 | 3.0 | 500 | 1,000 | 123.5 | 1.67 | 0.33 |" in text
    assert "| tallystick | 2.0 | 2.0 | 2.0 | - | 3 |" in text
    assert "a row is missing" in text
    assert "- **tallystick**: ours\n  - steps: three\n" in text
