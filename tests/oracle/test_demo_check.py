"""The demo's check passes for the real code, and fails for three mutants of it, each for the right reason."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import examples.demo.check
import tallystick.lake.lake
import tallystick.tables.staging
from examples.demo.check import Verdict
from tallystick.format.page import Granted
from tallystick.format.report import FileReport
from tallystick.kafka.accounting import AbortedProducers
from tallystick.kafka.markers import MarkerCheck
from tallystick.protocol import committing
from tallystick.tables.staging import IcebergTables

DAYS = 3


def bad(verdict: Verdict) -> dict[str, str]:
    """Return the findings that do not hold."""
    return {f.check: f.text for f in verdict.findings if not f.holds}


def run_all(demo: Any) -> None:
    """Run all three days, the last one first: intervals commit in any order."""
    for day in reversed(range(DAYS)):
        demo.run(day)


def test_the_real_code_passes_on_a_second_server(small_demo_on_versitygw: Any) -> None:
    """The demo's pipeline from Kafka to the check, on versitygw."""
    run_all(small_demo_on_versitygw)
    verdict = small_demo_on_versitygw.check()
    assert bad(verdict) == {}
    assert verdict.passed


def test_the_real_code_passes(small_demo: Any) -> None:
    results = [small_demo.run(day) for day in (2, 0, 1)]

    verdict = small_demo.check()
    assert bad(verdict) == {}
    assert verdict.passed
    assert list(verdict.lines())[-1] == "The check: PASS."
    # The retry of each commit returned AlreadyCommitted, so the mutant below changes it.
    assert [[r.already for r in day] for day in results] == [[False, True]] * DAYS
    texts = {f.check: f.text for f in verdict.findings}
    assert "2,556 flights of the CSV: 50 aborted, 9 cut" in texts["sent"]
    assert texts["sum"].startswith("2,529 flights + 27 dead letters = 2,556;")


def test_a_commit_that_never_returns_already_committed_fails(
    small_demo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = committing.decide_commit

    def never_already(root: Any, entry: Any, plan: Any, **known: Any) -> Any:
        decision = real(root, entry, plan, **known)
        if isinstance(decision, committing.AlreadyCommitted):
            # As if the ledger did not name committed plans: the grant seems to be valid.
            granted = Granted(plan=plan.key, request=plan.request, generation=plan.generation)
            return committing.Publish(
                before=dataclasses.replace(entry, granted=granted, committed=None)
            )
        return decision

    monkeypatch.setattr(committing, "decide_commit", never_already)
    # The invariants would refuse this swap (I5), so this guard is dropped as well.
    monkeypatch.setattr(tallystick.lake.lake, "check_swap", lambda *_: None)
    run_all(small_demo)

    problems = bad(small_demo.check())
    assert "occurs more than once (2,529 in all)" in problems["flights: once"]
    assert "occurs more than once (27 in all)" in problems["dead_letters: once"]
    assert "hourly: once" in problems
    assert "sum" in problems


def test_a_reader_without_the_aborted_filter_fails(
    small_demo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AbortedProducers, "aborts", lambda self, batch: False)
    monkeypatch.setattr(MarkerCheck, "data", lambda self, batch, aborted: None)
    run_all(small_demo)

    problems = bad(small_demo.check())
    assert "sent as" in problems["flights: only"]
    assert "aborted (50 in all)" in problems["flights: only"]
    assert "account" in problems
    assert "hourly: =" in problems


def test_a_file_that_a_table_lists_twice_fails(
    small_demo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = IcebergTables.stage
    doubled: list[int] = []

    def twice(self: Any, state: Any, *, add: Sequence[FileReport], **rest: Any) -> str:
        if state.name == "flights" and not doubled:
            doubled.append(add[0].rows)
            add = [*add, add[0]]
        return real(self, state, add=add, **rest)

    # tallystick's own guard against it is dropped first.
    monkeypatch.setattr(tallystick.tables.staging, "check_files", lambda *_, **__: None)
    monkeypatch.setattr(IcebergTables, "stage", twice)
    run_all(small_demo)

    problems = bad(small_demo.check())
    assert f"occurs more than once ({doubled[0]:,} in all)" in problems["flights: once"]
    assert problems.keys() == {"flights: once", "sum"}


def test_a_lake_that_cannot_be_read_fails(small_demo: Any) -> None:
    verdict = small_demo.check()
    assert not verdict.passed
    assert "NoSuchKey" in bad(verdict)["readable"]
    assert list(verdict.lines())[-1] == "The check: FAIL."


def test_the_check_imports_nothing_of_tallystick() -> None:
    folder = Path(examples.demo.check.__file__).parent
    foreign: set[str] = set()
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                foreign |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0
                foreign.add(node.module or "")
    assert not {name for name in foreign if name.startswith("tallystick")}
    ours = {name for name in foreign if name.split(".")[0] == "examples"}
    assert all(name.startswith(("examples.demo.check", "examples.checks")) for name in ours)
    assert "duckdb" in foreign
    assert "pyiceberg.table" in foreign
