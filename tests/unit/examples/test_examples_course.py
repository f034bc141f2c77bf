"""What the runner tells fits 100 columns; its judges share no code with tallystick, and one that is blind says FAIL."""

from __future__ import annotations

import ast
from pathlib import Path

import examples.checks
from examples.checks import Finding, Ruling, ruling
from examples.demo.story import WIDTH
from examples.runner.__main__ import Round, table
from examples.runner.registry import EXAMPLES

EXAMPLES_DIR = Path(examples.checks.__file__).parents[1]
CHECKS = [*EXAMPLES_DIR.glob("checks/*.py"), *EXAMPLES_DIR.glob("*/check.py")]
SHARED = ("examples.checks", "examples.ads.attribution")


def test_the_closing_table_fits() -> None:
    rounds = [
        Round(
            example="counts",
            how="kill -9 with 10 out " * 9,
            elapsed_s=61.4,
            rows=3_473,
            passed=True,
        ),
        Round(example="files", how="no kill", elapsed_s=1234.5, rows=0, passed=False),
    ]
    lines = list(table(rounds))
    assert all(len(line) <= WIDTH for line in lines)
    assert [line.rpartition(" ")[2] for line in lines[2:4]] == ["PASS", "FAIL"]


def test_a_judges_long_words_are_wrapped() -> None:
    findings = [Finding(check="all", holds=False, says="word " * 60)]
    lines = list(Ruling(rows=1, findings=findings).lines())
    assert len(lines) > 1
    assert all(len(line) <= WIDTH for line in lines)
    assert lines[0].startswith("  BAD  all")


def test_a_judge_that_cannot_look_or_has_nothing_to_look_at_passes_nobody() -> None:
    def blind() -> Ruling:
        raise FileNotFoundError("the folder")

    found = ruling(blind)
    assert not found.passed
    assert found.findings[0].says == "FileNotFoundError: the folder"
    held = Finding(check="all", holds=True, says="0 rows")
    assert not Ruling(rows=0, findings=[held]).passed
    assert not Ruling(rows=1, findings=[]).passed
    assert Ruling(rows=1, findings=[held]).passed


def test_the_judges_import_nothing_of_tallystick() -> None:
    assert {file.parent.name for file in CHECKS} == {*EXAMPLES, "checks"}
    for file in [*CHECKS, EXAMPLES_DIR / "ads" / "attribution.py"]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0
                names = [node.module or ""]
            assert not [name for name in names if name.startswith("tallystick")], file
            ours = [name for name in names if name.split(".")[0] == "examples"]
            # `ads` counts clicks as `counts` does, by the same reference.
            shared = (*SHARED, "examples.counts.check")
            assert all(name.startswith(shared) or name == "examples.ads" for name in ours), file
