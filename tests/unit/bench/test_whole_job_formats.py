"""The contenders of the benchmark of formats, what each step gets, and how a bundle is shown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench.whole_job.bundle import main, sealed, write_bundle
from bench.whole_job.contender import BenchEndpoints, BenchPlace, BenchWorkspace, Contender
from bench.whole_job.contenders.plain_spark import SparkJob
from bench.whole_job.formats.by_name import CONTENDERS, contenders_of
from bench.whole_job.formats.flights import COLUMNS as FLIGHT
from bench.whole_job.formats.plain_spark import WITHOUT_DICTIONARY
from bench.whole_job.formats.record_sets import SETS
from bench.whole_job.formats.report import WHAT, text_report
from bench.whole_job.formats.tallystick_tasks import DECODED, FormatOrder
from bench.whole_job.page import page
from bench.whole_job.records import FilledTopic
from bench.whole_job.rounds import job_of, small_job

REPO = Path(__file__).parents[3]
NAMES = list(SETS)


def test_the_flights_are_declared_as_in_the_demo() -> None:
    declared = re.findall(
        r'^    Column\("(\w+)", "(\w+)"(, required=False)?\),$',
        (REPO / "dags" / "flights.py").read_text(),
        re.MULTILINE,
    )
    columns = DECODED["flights"].columns or ()
    found = [
        (one.name, str(one.type), "" if one.required else ", required=False") for one in columns
    ]
    assert found == declared
    assert [name for name, _, _ in declared] == list(FLIGHT)


def topic(name: str) -> FilledTopic:
    return FilledTopic(topic=name, ends=(1, 1), broken=0, value_bytes=0, sha256="", expected=Path())


def prepared(contender: Contender, name: str, folder: Path) -> BenchPlace:
    """Prepare a contender; return a place for a run of it."""
    endpoints = BenchEndpoints(
        bootstrap="127.0.0.1:1",
        s3_url="http://127.0.0.1:2",
        s3_access_key="key",
        s3_secret_key="secret",
        s3_region="region",
        bucket="bench",
        registry='{"urls": "http://127.0.0.1:3"}',
    )
    contender.prepare(
        BenchWorkspace(folder=folder, endpoints=endpoints, cores=2, warm_up=small_job(topic(name)))
    )
    place = BenchPlace(folder=folder / "place", prefix="runs/1")
    place.output.mkdir(parents=True)
    return place


@pytest.mark.parametrize("name", NAMES)
def test_only_the_plan_gets_the_registry_and_reads_the_set(name: str, tmp_path: Path) -> None:
    (contender,) = contenders_of(["tallystick-without-spark"], SETS[name])
    place = prepared(contender, name, tmp_path)
    (place.folder / "plans.json").write_text('["a plan"]')
    steps = list(contender.steps(job_of(topic(name), "one"), place))
    assert [step.name for step in steps] == ["plan", "stage", "commit"]
    assert [step.main for step in steps] == [False, True, False]
    given = ["TALLYSTICK_REGISTRY_DEFAULT" in step.env for step in steps]
    assert given == [True, False, False]
    assert "bench.whole_job.formats.tallystick_tasks" in steps[0].argv
    order = FormatOrder(**json.loads((place.folder / "order.json").read_text()))
    (read,) = order.pipeline().inputs
    assert (read.name, read.decode) == (name, DECODED[name])


@pytest.mark.parametrize("name", NAMES)
def test_each_contender_has_its_name_its_settings_and_a_line_in_the_page(name: str) -> None:
    readme = (REPO / "bench" / "README.md").read_text()
    assert f"| `{name}` |" in readme
    found = contenders_of(list(CONTENDERS), SETS[name])
    assert [one.name for one in found] == list(CONTENDERS)
    assert all(one.settings["decode"] and one.cases == {"one"} for one in found)


@pytest.mark.parametrize("name", NAMES)
def test_the_columns_without_a_dictionary_are_those_of_the_rows(name: str) -> None:
    kept = {one.split(".")[0] for one in WITHOUT_DICTIONARY[name]}
    assert kept <= set(SETS[name].types)


@pytest.mark.parametrize("name", NAMES)
def test_plain_spark_has_a_job_and_an_archive_for_each_set(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    monkeypatch.setattr(
        "tallystick_devstack.class_archive.ClassArchive.make",
        lambda archive, run: made.append(archive.program),
    )
    for jars in ("connector_jars", "avro_jars"):
        monkeypatch.setattr(f"bench.whole_job.formats.plain_spark.{jars}", lambda: tmp_path)
    (contender,) = contenders_of(["spark-best"], SETS[name])
    place = prepared(contender, name, tmp_path)
    (step,) = contender.steps(job_of(topic(name), "one"), place)
    # Not `bench-spark-best-...`: making that archive removes all whose names begin with its own.
    assert made == [f"bench-spark-{name}-best"]
    program, order = (Path(str(word)) for word in step.argv[-2:])
    assert program.parent.name == "formats"
    assert sum("PushDownPredicates" in str(word) for word in step.argv) == 1
    found = json.loads(order.read_text())
    assert found["record_set"] == name
    assert ("schema" in found) == (name == "avro")
    assert found["parquet"]["compression"] == "zstd"


def test_the_job_of_the_clicks_is_the_default() -> None:
    assert SparkJob().path.name == "plain_spark_job.py"
    assert SparkJob().path.parent.name == "contenders"


def run(name: str, contender: str, cpu_s: float, **changed: object) -> dict[str, Any]:
    step = {
        "name": "job",
        "main": True,
        "cpu_s": cpu_s,
        "wall_s": cpu_s,
        "foreign_s": 0.0,
        "stolen_s": 0.0,
        "memory_bytes": 200 << 20,
    }
    return {
        "set": name,
        "round": 1,
        "size": "full",
        "case": "one",
        "contender": contender,
        "steps": [step],
        "s3": {"requests": {"PUT": 50}, "received": 1},
        "rest_bytes": 9_000_000,
        "ok": True,
        "problems": [],
        **changed,
    }


@pytest.fixture
def bundle() -> dict[str, Any]:
    records = {
        "small": {"value_bytes": 20_000_000, "broken": 0, "sha256": "a"},
        "full": {"value_bytes": 600_000_000, "broken": 0, "sha256": "b"},
    }
    contender = {"what": "a contender", "versions": {"spark": "4"}, "settings": {"decode": "json"}}
    one = {
        "what": "orders as JSON",
        "records": records,
        "contenders": {"spark-best": contender},
        "complete": True,
    }
    return sealed(
        {
            "what": WHAT,
            "date": "2026-11-27",
            "machine": {
                "cores": 2,
                "cpu": "a processor",
                "memory_gb": 24,
                "commit": "0" * 40,
                "changed": False,
            },
            "settings": {"seed": 7, "rounds": 1, "records": {"small": 20_000, "full": 520_000}},
            "sets": {"documents": one, "avro": {**one, "what": "clicks"}},
            "complete": True,
            "runs": [
                run("documents", "spark-best", 24.0),
                run("documents", "spark-best", 14.0, size="small"),
                run("documents", "tallystick-best", 6.0),
                run("documents", "tallystick-best", 4.0, size="small"),
                run("avro", "spark-best", 77.0),
                run("avro", "spark-best", 17.0, size="small"),
                run(
                    "avro", "spark-best", 1.0, size="small", ok=False, problems=["a row is missing"]
                ),
            ],
        }
    )


def test_the_text_has_each_set_with_its_own_runs(
    bundle: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = text_report(bundle)
    assert "documents, 520,000 records of 1,154 bytes" in text
    assert "documents, 20,000 records of 1,000 bytes" in text
    shown = [" ".join(line.split()) for line in text.splitlines()]
    assert any(line.startswith("tallystick-best 6.0 (6.0-6.0)") for line in shown)
    assert "tallystick-best 6.00 4.0 4.00 3.5 4.00 5.0" in shown, "the least of all rounds"
    assert any(line.startswith("spark-best (1 of 2 failed) 17.0") for line in shown)
    assert "a row is missing" in text
    assert max(map(len, text.splitlines())) <= 100
    write_bundle(tmp_path / "formats.json", bundle)
    assert main(tmp_path / "formats.json") == 0
    assert "avro, 520,000 records" in capsys.readouterr().out


def test_the_page_has_the_tables_and_the_settings_of_each_set(bundle: dict[str, Any]) -> None:
    text = page(bundle, "formats")
    lines = text.splitlines()
    assert [line for line in lines if line.startswith("## ")] == ["## Documents", "## Avro"]
    assert "Orders as JSON." in lines
    assert any(line.startswith("| tallystick-best | 6.0 (6.0-6.0) |") for line in lines)
    assert lines.count("- **spark-best**: a contender (spark 4)") == 2
    assert "](formats-cost.svg)" in text
    assert "](formats-per-million.svg)" in text
    assert "a row is missing" in text
    assert text.endswith("\n")


def test_a_bundle_of_one_size_is_shown_without_pictures(bundle: dict[str, Any]) -> None:
    small = {**bundle, "runs": [one for one in bundle["runs"] if one["size"] == "small"]}
    assert "small: CPU-s" in text_report(bundle)
    assert "small: CPU-s" not in text_report(small)
    assert ".svg" not in page(small, "formats")
    assert "| tallystick-best | 4.0 (4.0-4.0) |" in page(small, "formats")
