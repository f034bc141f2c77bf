"""Runs the demo, opens every page of its lake in Chromium, and fills a gap by the button: `make demo-pages`.

Each figure that is compared comes from the ledger, read by this program. Pictures are in build/browser/demo.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from playwright.sync_api import Frame

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.airflow_pages import Pages, open_pages
from support.running_demo import DAG, running_demo
from tallystick.format import keys
from tallystick.lake import Lake
from tallystick.operations.status import Status, read_log, read_status
from tallystick_devstack.airflow_api import AirflowApi
from tallystick_devstack.process import wait_until

DEADLINE_S = 300.0


def make_gap(api: AirflowApi, lake: Lake) -> None:
    """Commit a second that begins after the end of the ledger, so that the time between them is a gap."""
    last = read_status(lake).last
    assert last is not None
    start = last + timedelta(seconds=5)
    wait_until(
        lambda: datetime.now(UTC) > start + timedelta(seconds=2),
        deadline_s=DEADLINE_S,
        what="time after the ledger",
    )
    span = {"from": keys.instant(start), "to": keys.instant(start + timedelta(seconds=1))}
    api.set_paused(DAG, paused=False)
    api.trigger(DAG, conf=span, run_id="after_a_gap")
    wait_until(lambda: read_status(lake).gaps, deadline_s=DEADLINE_S, what="a gap", poll_s=1)
    wait_until(
        lambda: not read_status(lake).grants, deadline_s=DEADLINE_S, what="the commit", poll_s=1
    )


class Look:
    """The views of the lake in the tab of its DAG; `failed` counts the figures that a view lacks."""

    def __init__(self, browser: Pages) -> None:
        self._browser = browser
        self.failed = 0
        browser.page.goto(f"{browser.url}/dags/{DAG}/plugin/lake")
        self.frame = self._frame()

    def _frame(self) -> Frame:
        element = self._browser.page.locator("iframe[src*='tallystick/']").element_handle()
        assert element is not None
        frame = element.content_frame()
        assert frame is not None
        frame.locator("html[data-drawn]").wait_for(state="attached")
        return frame

    def open(self, view: str, ready: str, *figures: Any) -> None:
        """Open a view, wait for a text of it, and print if it shows each of the figures."""
        self.frame.evaluate(f"location.hash = '{f'#{view}' if view else ''}'")
        self.frame.locator("main").get_by_text(ready).first.wait_for()
        self.frame.get_by_text("Loading").first.wait_for(state="hidden")
        self.check(view.partition("/")[0] or "overview", *figures)

    def check(self, name: str, *figures: Any) -> None:
        """Print if the view that is shown has each of the figures, and save a picture."""
        text = " ".join(self.frame.locator("main").first.inner_text().split())
        for figure in figures:
            shown = f"{figure:,}" if isinstance(figure, int) else str(figure)
            found = shown in text
            self.failed += not found
            print(f"{'ok' if found else 'FAILED':<8}{name:<14}{shown}")
        self._browser.picture(name)


def look_at_all(look: Look, lake: Lake, before: Status) -> None:
    """Open each view of the lake with figures of the ledger."""
    (gap,) = before.gaps
    commits = read_log(lake, limit=None).commits
    look.open(
        "",
        "Needs attention",
        f"Committed {len(before.committed)} intervals",
        f"Gaps 1 {gap.offsets} offsets",
        f"Records {before.totals.records:,}",
        f"Dead letters {before.totals.dead_letters}",
    )
    look.open("commits", "after_a_gap", *(one.version for one in commits))
    look.open("dead-letters", "json", before.totals.dead_letters)
    look.open("lag", "flights", *before.topics)
    day = max(before.committed, key=lambda one: one.totals.dead_letters if one.totals else 0)
    assert day.totals is not None
    assert day.totals.dead_letters
    span = f"{keys.instant(day.interval.start)}/{keys.instant(day.interval.end)}"
    look.open(f"interval/{span}", "Account", day.totals.records, day.totals.dead_letters)
    versions = f"{commits[-1].version}/{commits[0].version}"
    look.open(f"compare/{versions}", "2013-01-02", "2013-01-02 to 2013-01-03")


def fill_gap(look: Look, lake: Lake, browser: Pages) -> None:
    """Press the button of the gap, and wait until the ledger has no gap and the page states it."""
    look.open("", "Needs attention")
    frame = look.frame
    frame.get_by_role("button", name="Fill gap").first.click()
    dialog = frame.get_by_role("dialog")
    dialog.get_by_role("button", name="Trigger run").click()
    dialog.get_by_text("was triggered").wait_for()
    path, body = browser.sent[-1]
    print(f"sent    POST {path} {body}")
    wait_until(lambda: not read_status(lake).gaps, deadline_s=DEADLINE_S, what="no gap", poll_s=1)
    dialog.get_by_role("button", name="Close").click()
    frame.get_by_text("Nothing needs attention").wait_for()
    look.check("filled", "Nothing needs attention")


def main() -> int:
    """Run the demo and look at its lake; return 0 if every figure is right and the gap was filled."""
    with running_demo({}) as (lake, api):
        make_gap(api, lake)
        before = read_status(lake)
        with open_pages(api, "demo") as browser:
            look = Look(browser)
            look_at_all(look, lake, before)
            fill_gap(look, lake, browser)
        after = read_status(lake)
    passed = not look.failed and not after.gaps and after.totals.records == before.totals.records
    print("PASS" if passed else "FAIL")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
