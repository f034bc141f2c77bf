"""The bundle and its table: a changed figure is found, and a run whose check failed gives no figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.whole_job.bundle import main, read_bundle, sealed, write_bundle
from bench.whole_job.contenders.by_name import QUICK, SLOW, contenders_of
from bench.whole_job.report import (
    least_rows,
    lines_of,
    marginal,
    markdown_report,
    text_report,
)
from bench.whole_job.rounds import finished_runs, turns_of
from bench.whole_job.speed import work_s

REPO = Path(__file__).parents[3]


def _run(contender: str, cpu_s: float, number: int = 1, **fields: Any) -> dict[str, Any]:
    step = {
        "name": "job",
        "main": True,
        "exit_code": 0,
        "cpu_s": cpu_s,
        "wall_s": cpu_s / 2,
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
        "steps": [step],
        "s3": {"requests": {"PUT": 1_000}, "kinds": {}, "received": 1, "sent": 1},
        "rest_bytes": 123_456_789,
        "ok": True,
        "problems": [],
        **fields,
    }


def _bundle(*runs: dict[str, Any]) -> dict[str, Any]:
    return sealed(
        {
            "date": "2026-01-01",
            "machine": {
                "cores": 2,
                "cpu": "a CPU",
                "memory_gb": 8,
                "commit": "c" * 40,
                "changed": False,
            },
            "settings": {"seed": 1, "rounds": 2, "records": {"full": 2_020_000, "small": 20_000}},
            "complete": True,
            "runs": list(runs),
        }
    )


def test_a_bundle_that_was_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bundle.json"
    write_bundle(path, _bundle(_run("spark-best", 10.0)))
    assert read_bundle(path)["runs"][0]["steps"][0]["cpu_s"] == 10.0
    assert main(path) == 0
    changed = json.loads(path.read_text())
    changed["runs"][0]["steps"][0]["cpu_s"] = 1.0
    path.write_text(json.dumps(changed))
    with pytest.raises(ValueError, match="expected digest"):
        read_bundle(path)
    assert main(path) == 1


def test_ratios_are_of_the_same_round() -> None:
    bundle = _bundle(
        _run("spark-best", 10.0, 1),
        _run("a", 5.0, 1),
        _run("spark-best", 30.0, 2),
        _run("a", 10.0, 2),
    )
    first, last = lines_of(bundle, "one", "full")
    assert (first.contender, last.contender) == ("a", "spark-best")
    assert first.ratio is not None
    assert (first.ratio.least, first.ratio.middle, first.ratio.most) == (2.0, 2.5, 3.0)


def test_a_run_whose_check_failed_gives_no_figure_and_is_named() -> None:
    failed = _run("a", 1.0, 2, ok=False, problems=["events: expected 2 rows, found 1"])
    bundle = _bundle(_run("spark-best", 10.0), _run("a", 5.0), failed)
    (line,) = (one for one in lines_of(bundle, "one", "full") if one.contender == "a")
    assert line.cpu_s is not None
    assert (line.runs, line.failed, line.cpu_s.least) == (2, 1, 5.0)
    for text in (text_report(bundle), markdown_report(bundle)):
        assert "a (1 of 2 failed)" in text
        assert "events: expected 2 rows, found 1" in text


def test_a_contender_whose_every_check_failed_is_in_the_table_without_figures() -> None:
    bundle = _bundle(_run("spark-best", 10.0), _run("a", 1.0, ok=False, problems=["events: none"]))
    assert "a (1 of 1 failed)" in text_report(bundle)
    assert lines_of(bundle, "one", "full")[-1].cpu_s is None


def test_the_cost_of_a_further_million_leaves_out_the_start() -> None:
    bundle = _bundle(_run("spark-best", 25.0), _run("spark-best", 5.0, size="small"))
    assert marginal(bundle, "one") == {"spark-best": pytest.approx(10.0)}


def test_the_least_of_all_rounds_has_ratios_of_its_own() -> None:
    bundle = _bundle(
        *(_run("spark-best", cpu_s, number) for number, cpu_s in ((1, 30.0), (2, 24.0))),
        *(_run("a", cpu_s, number) for number, cpu_s in ((1, 3.0), (2, 4.0))),
        *(
            _run("spark-best", cpu_s, number, size="small")
            for number, cpu_s in ((1, 4.0), (2, 9.0))
        ),
        *(_run("a", cpu_s, number, size="small") for number, cpu_s in ((1, 2.5), (2, 1.0))),
        _run("failed", 0.1, 1, ok=False, problems=["events: none"]),
        _run("large only", 8.0),
    )
    _, *rows = least_rows(bundle, "one")
    assert rows == [
        ["a", "3.00", "8.0", "1.00", "4.0", "1.00", "10.0"],
        ["large only", "8.00", "3.0", "-", "-", "-", "-"],
        ["spark-best", "24.00", "1.0", "4.00", "1.0", "10.00", "1.0"],
    ]
    assert "| a | 3.00 | 8.0 |" in markdown_report(bundle)


def test_the_spread_of_the_fixed_work_is_below_the_tables() -> None:
    speeds = enumerate((0.3, 0.6, 0.15), 1)
    bundle = _bundle(*(_run("spark-best", 20.0, n, work_s=work) for n, work in speeds))
    for text in (text_report(bundle), markdown_report(bundle)):
        assert "0.30 (0.15-0.60) s of CPU time." in text
    assert "fixed piece of work" not in text_report(_bundle(_run("spark-best", 20.0)))


def test_the_fixed_work_takes_cpu_time_on_each_core() -> None:
    assert work_s(2) > 0


def test_a_run_with_other_load_is_counted_as_noisy() -> None:
    run = _run("spark-best", 10.0)
    run["steps"][0]["foreign_s"] = 0.6
    assert "1 of 1 runs had other programs" in text_report(_bundle(run))


def test_the_text_is_at_most_100_columns_wide() -> None:
    runs = [
        _run(name, 123.4 + number, number, size=size, work_s=0.3)
        for name in ("tallystick-default", "spark-best")
        for number in (1, 2)
        for size in ("full", "small")
    ]
    assert max(map(len, text_report(_bundle(*runs)).splitlines()[1:])) <= 100


def test_every_contender_has_every_turn_once_per_round_in_an_order_of_the_seed() -> None:
    contenders = contenders_of(None, full=False)
    turns = turns_of(contenders, ("one", "three"), {"full": 3, "small": 2}, seed=4)
    places = [(t.round, t.size, t.case, t.contender.name) for t in turns]
    assert len(set(places)) == len(places) == (3 + 2) * 2 * len(QUICK)
    assert [t.round for t in turns] == sorted(t.round for t in turns)
    again = turns_of(contenders, ("one", "three"), {"full": 3, "small": 2}, seed=4)
    other = turns_of(contenders, ("one", "three"), {"full": 3, "small": 2}, seed=5)
    assert turns == again
    assert turns != other


def test_a_contender_is_chosen_by_the_beginning_of_its_name() -> None:
    chosen = contenders_of("tally,spark-best", full=False)
    assert [one.name for one in chosen] == [
        *("tallystick-default", "tallystick-best", "tallystick-without-spark", "tallystick-replay"),
        "spark-best",
    ]
    with pytest.raises(SystemExit, match="no contender is called 'x'"):
        contenders_of("x", full=False)


def test_every_contender_has_its_name_and_a_line_in_the_page() -> None:
    page = (REPO / "bench" / "README.md").read_text()
    for name, make in {**QUICK, **SLOW}.items():
        contender = make()
        assert contender.name == name
        assert contender.settings
        assert f"| `{name}` |" in page or f"| `{name.rpartition('-')[0]}` |" in page


class _Interrupted:
    """A runner that is interrupted in its third run."""

    done = 0

    def run(self, turn: Any) -> dict[str, Any]:
        if self.done == 2:
            raise KeyboardInterrupt
        self.done += 1
        return _run(turn.contender.name, 1.0)


def test_an_interrupted_benchmark_keeps_the_runs_that_have_ended() -> None:
    turns = turns_of(contenders_of("script", full=False), ("one", "three"), {"full": 3}, seed=1)
    assert len(finished_runs(_Interrupted(), turns)) == 2


def test_the_table_of_an_interrupted_benchmark_names_that() -> None:
    bundle = _bundle(_run("spark-best", 10.0)) | {"complete": False}
    assert "interrupted" in text_report(bundle)
