"""`tally init` from a file: the two files are what a person would write, decode the sample, and are never overwritten."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from unit.cli.invoke import tally, too_wide

PROJECT = Path(__file__).parents[3]
PLAIN = [
    {"time": f"2015-09-12T00:46:5{n}.771Z", "page": "P", "added": n, "city": "R" if n else None}
    for n in range(5)
]
ODD = [
    {
        "http.method": "GET",
        'a"b': 1,
        'it\'s "odd"': 2,
        "tab\there": 3,
        "back\\slash": 4,
        "größe": 1.5,
        "User": "a",
        "user": "b",
        "a_name_so_long_that_the_line_of_its_column_does_not_fit_into_88_characters": "x",
        "source that needs a name of its own and is long, too, so that it is broken": None,
        "mixed": "x" if n else 1,
        "price": 1.5,
        "meta": {"a": 1},
        "device": {
            "user-agent": "x",
            "seen_at": [1700000000000],
            "screen": {"a": 1, "b": [{"c d": 1}]},
        },
        "items": [
            {
                "sku": "a",
                "price_in_cents": 1,
                "a_long_name_of_a_field": "x",
                "another_long_one": [1.5],
            }
        ],
        "odd": [1, {"a": 1}],
        "t": 1442018818 + n,
        "when": "2015-09-12T00:46:58",
        "day": "2015-09-12",
        "apache_time": "10/Oct/2000:13:55:36 -0700",
    }
    for n in range(3)
]
SAMPLES: dict[str, list[dict[str, Any]]] = {
    "plain": PLAIN,
    "odd": ODD,
    "no time": [{"n": 1}],
    "two times": [{"created_at": "2015-09-12T00:00:00Z", "updated_at": "2015-09-12T00:00:00Z"}],
    "no string": [{"t": "2015-09-12T00:00:00Z", "n": None}],
}


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Make the current folder a project with DAG files, without an environment."""
    for name in ("TALLYSTICK_LAKE", "AIRFLOW__CORE__DAGS_FOLDER", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "dags").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sample(folder: Path, rows: list[dict[str, Any]]) -> str:
    path = folder / "records.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)


def init(folder: Path, rows: list[dict[str, Any]], *more: str) -> Result:
    return tally("init", "wiki", "--topic", "wikiticker", "--sample", sample(folder, rows), *more)


def dag_text(folder: Path) -> str:
    return (folder / "dags" / "wiki.py").read_text()


@pytest.mark.parametrize("name", SAMPLES)
def test_the_files_pass_ruff_and_the_check(name: str, folder: Path) -> None:
    result = init(folder, SAMPLES[name])
    assert result.exit_code == 0, result.stderr
    assert too_wide(result.stdout) == []
    ruff = str(Path(sys.executable).with_name("ruff"))
    files = ["dags/wiki.py", "spark_jobs/wiki.py"]
    (folder / "pyproject.toml").write_text((PROJECT / "pyproject.toml").read_text())
    for config in (["--isolated"], []):
        for command in (["format", "--diff"], ["check"]):
            checked = subprocess.run(
                [ruff, *command, *config, *files],
                cwd=folder,
                check=False,
                capture_output=True,
                text=True,
            )
            assert checked.returncode == 0, checked.stdout + checked.stderr
    offline = ["--offline", "--sample", "records.jsonl"]
    assert tally("check", "dags/wiki.py", *offline).exit_code == 0
    assert max(map(len, dag_text(folder).splitlines())) <= 92


def test_a_clone_keeps_imports_of_tallystick_in_a_block_of_their_own(folder: Path) -> None:
    (folder / "plugins" / "tallystick").mkdir(parents=True)
    init(folder, PLAIN)
    job = (folder / "spark_jobs" / "wiki.py").read_text()
    assert "import pyarrow as pa\n\nfrom tallystick.spark import run\n" in job


def test_the_dag_file_has_what_the_sample_shows(folder: Path) -> None:
    result = init(folder, PLAIN)
    text = dag_text(folder)
    assert '    Column("time", "timestamptz"),\n' in text
    assert '    Column("city", "string", required=False),  # missing or null in 1 of 5\n' in text
    assert 'Table("wiki", columns=COLUMNS, partition_by=["day(time)"]),' in text
    assert 'warehouse="s3://lake/wiki"' in text
    assert "Wrote dags/wiki.py and spark_jobs/wiki.py: 4 columns from 5 records" in result.stdout
    assert "5 read: 5 decoded, 0 dead letters" in result.stdout
    assert "rows by table: wiki 5" in result.stdout
    assert "tally check dags/wiki.py" in result.stdout
    assert "airflow dags unpause wiki" in result.stdout


def test_a_person_is_asked_in_comments(folder: Path) -> None:
    init(folder, ODD)
    text = dag_text(folder)
    assert "# decide: numbers and strings in the sample; as string, 1 of 3 become" in text
    assert "# decide: a double is not exact; for money use e.g. decimal(18,2)" in text
    assert '    Column("meta", "struct<a: long>"),\n' in text
    assert '            Column("seen_at", "list<timestamptz>", parse="epoch_ms"),\n' in text
    assert (
        "    # decide: parts of different kinds are kept as JSON text\n"
        '    Column("odd", "list<string>", parse="json"),\n'
    ) in text
    assert 'Column("http_method", "string", source=r"http\\.method"),' in text
    assert 'partition_by=["day(_timestamp)"]' in text, "several times: none is chosen"
    assert "or by a column: day(t), day(when), day(day)" in text.replace("\n        # ", " ")


def test_the_result_names_the_dead_letters(folder: Path) -> None:
    result = init(folder, ODD)
    assert "3 read: 2 decoded, 1 dead letters" in result.stdout


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--partition-by", "updated_at"], 'partition_by=["day(updated_at)"]'),
        (["--warehouse", "s3://mine/w/"], 'warehouse="s3://mine/w",'),
        (["--kafka", "prod"], 'kafka="prod",'),
    ],
)
def test_options_are_written(folder: Path, options: list[str], text: str) -> None:
    assert init(folder, SAMPLES["two times"], *options).exit_code == 0
    assert text in dag_text(folder)


def test_the_warehouse_is_next_to_the_lake_of_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYSTICK_LAKE", "s3://company/lakes/flights/")
    init(folder, PLAIN)
    assert 'warehouse="s3://company/lakes/wiki",' in dag_text(folder)


@pytest.mark.parametrize("there", ["dags/wiki.py", "spark_jobs/wiki.py"])
def test_a_file_that_exists_is_kept_and_nothing_is_written(folder: Path, there: str) -> None:
    file = folder / there
    file.parent.mkdir(exist_ok=True)
    file.write_text("mine")
    result = init(folder, PLAIN)
    assert result.exit_code == 77
    assert "expected no such file, found one. Nothing was written." in " ".join(
        result.stderr.split()
    )
    assert file.read_text() == "mine"
    assert [p.name for p in folder.rglob("*.py")] == ["wiki.py"]


def test_a_second_init_changes_nothing(folder: Path) -> None:
    init(folder, PLAIN)
    before = dag_text(folder)
    assert init(folder, ODD).exit_code == 77
    assert dag_text(folder) == before


def test_a_gzip_file_is_read_up_to_the_limit(folder: Path) -> None:
    path = folder / "records.jsonl.gz"
    with gzip.open(path, "wt") as file:
        file.write("\n\n".join(json.dumps(row) for row in PLAIN))
    result = tally("init", "wiki", "--sample", str(path), "--records", "2", "--json")
    answer = json.loads(result.stdout)
    assert (answer["topic"], answer["partition_by"]) == ("wiki", "day(time)")
    city = next(one for one in answer["columns"] if one["name"] == "city")
    assert (city["required"], city["notes"]) == (False, ["missing or null in 1 of 2"])
    assert answer["check"]["ok"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected JSON lines, found an empty file"),
        (b"[\n1\n]", "expected JSON objects with fields at the top level, found none in 3 records"),
        (
            b"\x00\x00\x00\x00\x05\x02\x04",
            "They have Confluent's wire format (schema 5): declare the topic with Avro",
        ),
        (b"\x1f\x8bno gzip", "cannot be read"),
        (None, "cannot be read"),
    ],
)
def test_a_file_without_objects_is_refused(
    folder: Path, content: bytes | None, message: str
) -> None:
    path = folder / "records"
    if content is not None:
        path.write_bytes(content)
    result = tally("init", "wiki", "--sample", str(path))
    assert result.exit_code == 77
    assert message in " ".join(result.stderr.split())
    assert list(folder.rglob("*.py")) == []


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["Wiki"], "pipeline name 'Wiki' is not allowed"),
        (["wiki", "--topic", "a b"], "topic name 'a b' is not allowed"),
        (["wiki", "--partition-by", "page"], "expected one of the times time, _timestamp"),
    ],
)
def test_names_are_checked_before_anything_is_written(
    folder: Path, argv: list[str], message: str
) -> None:
    result = tally("init", *argv, "--sample", sample(folder, PLAIN))
    assert result.exit_code == 77
    assert message in " ".join(result.stderr.split())
    assert list(folder.rglob("*.py")) == []
