"""The runner's output fits 100 columns; the checks import nothing of tallystick, and fail if they cannot read."""

from __future__ import annotations

import ast
from pathlib import Path

import examples.checks
from examples.checks import CheckResult, Finding, run_check
from examples.demo.console import WIDTH
from examples.runner.__main__ import Round, table
from examples.runner.copies import module_of
from examples.runner.registry import EXAMPLES, WITH_REGISTRY, parts_of

EXAMPLES_DIR = Path(examples.checks.__file__).parents[1]
CHECKS = [*EXAMPLES_DIR.glob("checks/*.py"), *EXAMPLES_DIR.glob("*/check.py")]
SHARED = ("examples.checks", "examples.ads.attribution")


def test_the_table_at_the_end_fits_the_width() -> None:
    rounds = [
        Round(
            example="counts",
            kill="kill -9 with 10 published " * 9,
            elapsed_s=61.4,
            rows=3_473,
            passed=True,
        ),
        Round(example="files", kill="no kill", elapsed_s=1234.5, rows=0, passed=False),
    ]
    lines = list(table(rounds))
    assert all(len(line) <= WIDTH for line in lines)
    assert [line.rpartition(" ")[2] for line in lines[2:4]] == ["PASS", "FAIL"]


def test_the_long_text_of_a_finding_is_wrapped() -> None:
    findings = [Finding(check="all", holds=False, text="word " * 60)]
    lines = list(CheckResult(rows=1, findings=findings).lines())
    assert len(lines) > 1
    assert all(len(line) <= WIDTH for line in lines)
    assert lines[0].startswith("  BAD  all")


def test_a_check_that_raises_or_has_no_rows_or_no_findings_fails() -> None:
    def broken() -> CheckResult:
        raise FileNotFoundError("the folder")

    result = run_check(broken)
    assert not result.passed
    assert result.findings[0].text == "FileNotFoundError: the folder"
    good = Finding(check="all", holds=True, text="0 rows")
    assert not CheckResult(rows=0, findings=[good]).passed
    assert not CheckResult(rows=1, findings=[]).passed
    assert CheckResult(rows=1, findings=[good]).passed


def test_the_checks_import_nothing_of_tallystick() -> None:
    assert {file.parent.name for file in CHECKS} == {*map(module_of, EXAMPLES), "checks"}
    for file in [*CHECKS, EXAMPLES_DIR / "ads" / "attribution.py"]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0
                names = [node.module or ""]
            assert not [name for name in names if name.startswith("tallystick")], file
            own = [name for name in names if name.split(".")[0] == "examples"]
            # `ads` reads its topic with the consumer of `counts`.
            shared = (*SHARED, "examples.counts.check")
            assert all(name.startswith(shared) or name == "examples.ads" for name in own), file


def test_the_stack_has_a_registry_only_for_examples_that_need_it() -> None:
    assert "registry" not in parts_of(sorted(EXAMPLES.keys() - WITH_REGISTRY))
    for name in WITH_REGISTRY:
        assert "registry" in parts_of(["files", name])
