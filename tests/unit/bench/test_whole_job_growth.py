"""The benchmark of growth: each axis has what it states, and a bundle is shown by size and contender."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.whole_job.bundle import main, sealed, write_bundle
from bench.whole_job.growth.axes import AXES, LARGE
from bench.whole_job.growth.report import WHAT, lines, text_report
from bench.whole_job.page import page
from bench.whole_job.places import PARTITIONS
from tallystick.store.address import parse_s3_uri


def step(name: str, cpu_s: float) -> dict[str, Any]:
    return {
        "name": name,
        "main": name == "stage",
        "cpu_s": cpu_s,
        "wall_s": 2 * cpu_s,
        "foreign_s": 0.0,
        "stolen_s": 0.0,
        "memory_bytes": 200 << 20,
    }


def run(axis: str, size: str, contender: str, stage_s: float, **changed: object) -> dict[str, Any]:
    return {
        "axis": axis,
        "round": 1,
        "size": size,
        "case": "one",
        "contender": contender,
        "steps": [step("plan", 1.0), step("stage", stage_s), step("commit", 1.5)],
        "s3": {"requests": {"GET": 7, "PUT": 50}, "received": 1},
        "rest_bytes": 9_000_000,
        "ok": True,
        "problems": [],
        **changed,
    }


@pytest.fixture
def bundle() -> dict[str, Any]:
    sizes = [{"name": name, "records": 1, "partitions": 8} for name in ("few", "many")]
    axis = {"what": "records", "sizes": sizes, "contenders": {"tallystick-best": {}, "other": {}}}
    runs = [
        run("records", "few", "tallystick-best", 2.0),
        run("records", "many", "tallystick-best", 4.0),
        run("records", "many", "tallystick-best", 8.0, round=2),
        run("records", "many", "tallystick-best", 99.0, ok=False, problems=["a row is missing"]),
        run("records", "few", "other", 3.0),
        run("skew", "few", "other", 77.0),
    ]
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
            "settings": {"seed": 7, "rounds": 2},
            "axes": {"records": axis, "skew": {**axis, "what": "shares"}},
            "complete": True,
            "runs": runs,
        }
    )


def test_the_lines_are_in_the_order_of_the_declaration_and_of_their_axis_only(
    bundle: dict[str, Any],
) -> None:
    found = [(line.contender, size["name"], line.runs) for size, line in lines(bundle, "records")]
    assert found == [
        ("tallystick-best", "few", 1),
        ("tallystick-best", "many", 3),
        ("other", "few", 1),
    ]


def test_the_text_has_the_median_of_each_step_and_the_failed_run(bundle: dict[str, Any]) -> None:
    text = text_report(bundle)
    (many,) = [line for line in text.splitlines() if line.startswith("many")]
    shown = " ".join(many.split())
    assert shown == "many best (1 of 3 failed) 8.5 (6.5-10.5) 1.0 6.0 1.5 17.0 200 57 9.0"
    assert "round 1, tallystick-best, case one, many: a row is missing" in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_bundle_command_prints_its_tables(
    bundle: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_bundle(tmp_path / "growth.json", bundle)
    assert main(tmp_path / "growth.json") == 0
    assert "skew: shares" in capsys.readouterr().out


def test_the_page_has_a_table_and_a_picture_of_each_axis(bundle: dict[str, Any]) -> None:
    text = page(bundle, "growth")
    assert "| many | best (1 of 3 failed) | 8.5 (6.5-10.5) | 1.0 | 6.0 | 1.5 |" in text
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## Records",
        "## Skew",
    ]
    assert "](growth-records.svg)" in text
    assert "](growth-others.svg)" in text
    assert "a row is missing" in text


@pytest.mark.parametrize("name", list(AXES))
def test_the_sizes_of_an_axis_differ_and_each_run_has_a_name_of_its_own(name: str) -> None:
    axis = AXES[name]
    keys = [(size.name, one.name) for size in axis.sizes for one in axis.contenders]
    assert len(set(keys)) == len(keys) > 1
    for size, contender in keys:
        assert parse_s3_uri(f"s3://bench/runs/001-{contender}-one-{size}").bucket == "bench"


def test_sizes_of_many_records_are_run_once() -> None:
    rounds = {size.records: size.rounds(3) for size in AXES["records"].sizes}
    assert {count: n for count, n in rounds.items() if count >= LARGE} == {LARGE: 1, 5 * LARGE: 1}
    assert rounds[1_000] == 3


def test_the_skewed_topics_have_the_shares_of_their_names() -> None:
    shares = [size.places.ends(size.records)[0] / size.records for size in AXES["skew"].sizes]
    assert shares == pytest.approx([1 / PARTITIONS, 0.5, 0.9, 1.0], abs=1e-4)
