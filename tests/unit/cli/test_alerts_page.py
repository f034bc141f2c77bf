"""docs/how-to/alerts.md: its rules fit the fields of `tally status`, and jq evaluates them as documented."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.small_lake import SmallLake
from tallystick.operations.status import PROBLEMS
from unit.cli.invoke import LAKE, tally_json

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "how-to" / "alerts.md").read_text(encoding="utf-8")
RULES = [
    rule.replace("\\|", "|")
    for rule in re.findall(r"^\| [^|]+ \| `((?:\\\||[^`])+)` \|", PAGE, re.MULTILINE)
]
LAG = {"connection": "default", "topics": {"events": {"lag": 5, "gone": 0}}, "error": None}
LATE = {"connection": "default", "topics": {"events": {"lag": 10**9, "gone": 1}}, "error": {}}


def healthy() -> dict[str, Any]:
    return {
        "problems": {},
        "intervals": [{"dead_share": 0.01}],
        "committed_at": "2999-01-01T00:00:00.000Z",
        "lag": LAG,
        "retention": [{"endangered": False}],
    }


BAD = {
    "problems": dict.fromkeys(PROBLEMS, 1),
    "intervals": [{"dead_share": 1.0}],
    "committed_at": "2013-01-01T00:00:00.000Z",
    "lag": LATE,
    "retention": [{"endangered": False}, {"endangered": True}],
}


def holds(rule: str, answer: Any) -> bool:
    done = subprocess.run(
        ["jq", "-e", rule], input=json.dumps(answer), capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    return done.returncode == 0


def test_the_page_has_its_rules_and_its_links_resolve() -> None:
    assert len(RULES) == 11
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", PAGE):
        if not target.startswith("https://"):
            assert (DOCS / "how-to" / target).resolve().is_file(), target


def test_rules_name_fields_and_problems_that_exist(lake: SmallLake) -> None:
    answer = tally_json("status", LAKE)
    assert {rule.split(".problems.")[1].split()[0] for rule in RULES if ".problems." in rule} <= {
        *PROBLEMS
    }
    for name in re.findall(r"(?<![\w\].])\.([a-z_]+)", " ".join(RULES)):
        assert name in {*answer, "gone", "endangered"}, name


@pytest.mark.skipif(shutil.which("jq") is None, reason="this machine has no jq")
@pytest.mark.parametrize("rule", RULES)
def test_each_rule_holds_for_a_healthy_lake_and_not_for_a_bad_one(rule: str) -> None:
    assert holds(rule, healthy())
    assert not holds(rule, BAD)
