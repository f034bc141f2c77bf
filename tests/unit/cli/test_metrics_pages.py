"""The dashboard, the alert rules and the runbook: every name exists, and promtool fires each alert when it should."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tallystick.operations.metrics import METRICS, Metric

DOCS = Path(__file__).parents[3] / "docs"
RULES_FILE = DOCS / "prometheus" / "tallystick-alerts.yml"
RUNBOOK = (DOCS / "how-to" / "runbook.md").read_text(encoding="utf-8")
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load(RULES_FILE.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
DASHBOARD = json.loads((DOCS / "grafana" / "tallystick.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
VARIABLES = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
BY_NAME = {metric.prometheus: metric for metric in METRICS.values()}
EXPRESSIONS = {
    **{rule["alert"]: str(rule["expr"]) for rule in RULES},
    **{
        f"{panel['title']} {target['refId']}": str(target["expr"])
        for panel in PANELS
        for target in panel.get("targets", ())
    },
    "the variable": DASHBOARD["templating"]["list"][1]["query"]["query"],
}
PROMTOOL = shutil.which("promtool")


def metrics_in(expression: str) -> list[Metric]:
    """Return the metrics that an expression names; each name must exist."""
    names = re.findall(r"\b(?:airflow_)?tallystick_\w+", expression)
    return [BY_NAME[name] for name in names]


def labels_in(expression: str) -> set[str]:
    """Return the labels by which an expression selects or groups."""
    selected = [part for body in re.findall(r"\{([^}]*)\}", expression) for part in body.split(",")]
    grouped = [
        part for body in re.findall(r"by \(([^)]*)\)", expression) for part in body.split(",")
    ]
    names = [re.split(r"=~|!~|!=|=", part)[0].strip() for part in selected]
    return {name for name in (*names, *(part.strip() for part in grouped)) if name}


@pytest.mark.parametrize("where", EXPRESSIONS)
def test_each_expression_names_metrics_and_labels_that_exist(where: str) -> None:
    found = metrics_in(EXPRESSIONS[where])
    assert found
    for metric in found:
        assert labels_in(EXPRESSIONS[where]) <= set(metric.attributes)
    if any(metric.kind == "counter" for metric in found):
        assert "increase(" in EXPRESSIONS[where]


def test_a_wrong_name_and_a_wrong_label_are_found() -> None:
    with pytest.raises(KeyError):
        metrics_in("sum(tallystick_gap)")
    assert labels_in('sum by (a, b) (x{c=~"$d",e!="f"})') == {"a", "b", "c", "e"}


def test_legends_and_summaries_use_labels_of_their_metric() -> None:
    for panel in PANELS:
        for target in panel.get("targets", ()):
            legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert legend <= labels_in(target["expr"]), panel["title"]
    for rule in RULES:
        summary = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        grouped = re.search(r"by \(([^)]*)\)", rule["expr"])
        known = (
            {name.strip() for name in grouped[1].split(",")}
            if grouped
            else set(metrics_in(rule["expr"])[0].attributes)
        )
        assert summary <= known, rule["alert"]


def test_the_panels_fit_the_grid_and_use_the_variables() -> None:
    assert {"datasource", "pipeline"} == VARIABLES
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        for target in panel.get("targets", ()):
            assert target["datasource"]["uid"] == "${datasource}"
    variables = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD)))
    assert variables <= VARIABLES | {"__rate_interval", "__all"}


def test_what_the_dashboard_must_show_is_there() -> None:
    shown = {metric.name for where in EXPRESSIONS for metric in metrics_in(EXPRESSIONS[where])}
    assert shown >= {
        "tallystick.lag.offsets",
        "tallystick.lag.age",
        "tallystick.intervals",
        "tallystick.gaps",
        "tallystick.commit.dead_letters",
        "tallystick.commit.duration",
        "tallystick.pending.intervals",
        "tallystick.retention.left",
    }


# ---------------------------------------------------------------- alerts and runbook


def test_each_alert_has_its_section_in_the_runbook_and_each_section_an_alert() -> None:
    alerts = [rule["alert"] for rule in RULES]
    assert re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE) == alerts
    for rule in RULES:
        section = f"docs/how-to/runbook.md#{rule['alert'].lower()}"
        assert rule["annotations"]["runbook"] == section
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}


def test_each_section_describes_what_it_means_what_to_look_at_and_what_to_do() -> None:
    for section in re.split(r"^## ", RUNBOOK, flags=re.MULTILINE)[1:]:
        parts = re.findall(r"^\*\*([^*]+):\*\*", section, re.MULTILINE)
        assert parts == ["What it means", "Look at", "Do"], section


@pytest.mark.parametrize("page", ["metrics.md", "runbook.md"])
def test_the_links_of_the_page_resolve(page: str) -> None:
    text = (DOCS / "how-to" / page).read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", text):
        if target.startswith("https://"):
            continue
        file = (DOCS / "how-to" / target).resolve() if target else DOCS / "how-to" / page
        assert file.is_file(), target
        if anchor:
            assert anchor in anchors(file.read_text(encoding="utf-8")), (target, anchor)


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# By alert: series in promtool's notation that must fire it after seven hours, and series that must not.
L = 'lake="l",pipeline="p"'
CASES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "TallystickNoMetrics": ({}, {'tallystick_lake_readable{lake="l"}': "1x420"}),
    "TallystickLakeUnreadable": (
        {'tallystick_lake_readable{lake="l"}': "0x420"},
        {'tallystick_lake_readable{lake="l"}': "1x420"},
    ),
    "TallystickLagUnknown": (
        {f"tallystick_lag_known{{{L}}}": "0x420"},
        {f"tallystick_lag_known{{{L}}}": "1x420"},
    ),
    "TallystickGap": (
        {f"tallystick_gaps{{{L}}}": "0x300 1x120"},
        {f"tallystick_gaps{{{L}}}": "0x390 1x30"},
    ),
    "TallystickStuckGrant": (
        {f"tallystick_stuck_grants{{{L}}}": "1x420"},
        {f"tallystick_stuck_grants{{{L}}}": "0x420"},
    ),
    "TallystickLagAge": (
        {f'tallystick_lag_age_seconds{{{L},topic="t"}}': "129601x420"},
        {f'tallystick_lag_age_seconds{{{L},topic="t"}}': "129600x420"},
    ),
    "TallystickNoCommit": (
        {f"tallystick_commit_age_seconds{{{L}}}": "172801x420"},
        {f"tallystick_commit_age_seconds{{{L}}}": "172800x420"},
    ),
    "TallystickRetentionLow": (
        {f'tallystick_retention_left_seconds{{{L},topic="t"}}': "86399x420"},
        {f'tallystick_retention_left_seconds{{{L},topic="t"}}': "86400x420"},
    ),
    "TallystickOffsetsGone": (
        {f'tallystick_lag_gone_offsets{{{L},topic="t",partition="1"}}': "0x410 5x10"},
        {f'tallystick_lag_gone_offsets{{{L},topic="t",partition="1"}}': "0x420"},
    ),
    "TallystickOffsetsLost": (
        {f'tallystick_committed_offsets{{{L},class="lost"}}': "7x390 9x30"},
        {
            f'tallystick_committed_offsets{{{L},class="lost"}}': "0x300 7x120",
            f'tallystick_committed_offsets{{{L},class="records"}}': "0+100x420",
        },
    ),
    "TallystickDeadLetters": (
        {f"tallystick_latest_dead_letters_ratio{{{L}}}": "0.06x420"},
        {f"tallystick_latest_dead_letters_ratio{{{L}}}": "0.05x420"},
    ),
    "TallystickAllDead": (
        {f"tallystick_dead_intervals{{{L}}}": "1x420"},
        {f"tallystick_dead_intervals{{{L}}}": "0x420"},
    ),
    "TallystickOutputPending": (
        {f'tallystick_pending_intervals{{{L},output="o"}}': "1x420"},
        {f'tallystick_pending_intervals{{{L},output="o"}}': "1x200 0x10 1x210"},
    ),
    "TallystickStale": (
        {f"tallystick_stale_intervals{{{L}}}": "2x420"},
        {f"tallystick_stale_intervals{{{L}}}": "0x420"},
    ),
}


def test_each_alert_has_a_case() -> None:
    assert list(CASES) == [rule["alert"] for rule in RULES]


needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="this machine has no promtool (Debian's package prometheus has it)"
)


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None
    return subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, check=False)


@needs_promtool
def test_promtool_accepts_the_rules() -> None:
    done = promtool("check", "rules", str(RULES_FILE))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(RULES)} rules found" in done.stdout


@needs_promtool
def test_each_alert_fires_for_its_problem_and_not_without_it(tmp_path: Path) -> None:
    tests = [
        {
            "name": f"{alert}, {'fires' if fires else 'does not fire'}",
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                    "eval_time": "420m",
                    "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
                }
            ],
        }
        for alert, cases in CASES.items()
        for fires, series in zip((True, False), cases, strict=True)
    ]
    file = tmp_path / "rules_test.yml"
    document = {"rule_files": [str(RULES_FILE)], "evaluation_interval": "1m", "tests": tests}
    file.write_text(json.dumps(document))
    done = promtool("test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
