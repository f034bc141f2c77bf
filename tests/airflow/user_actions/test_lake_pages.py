"""The pages of a lake in Airflow's UI, in a browser: what they show of a real lake, and a gap that a button fills."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Frame, Page

from support.airflow_pages import open_pages
from support.user_action_driver import DEADLINE_S, Driver
from support.user_action_project import Row, day
from support.user_action_scenarios import EVERY_TEST, scenario
from tallystick.operations.run_request import defaults
from tallystick.operations.status import Status, read_log
from tallystick_devstack.airflow_api import trigger_body
from tallystick_devstack.process import wait_until

pytestmark = EVERY_TEST
DAG = "pages"
RUNS = {"day_1": (1, 2), "day_3": (3, 4)}
"""The runs before the browser is opened: they leave day 2 as a gap."""


@dataclass
class Seen:
    """What the pages showed, by view, and the lake before and after the button."""

    before: Status
    after: Status
    rows: list[Row]
    expected: list[Row]
    texts: dict[str, str] = field(default_factory=dict)
    sent: dict[str, Any] = field(default_factory=dict)
    filled_by: str = ""
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    linked: str = ""
    dark: str = ""
    committed: int = 0


def frame_of(page: Page) -> Frame:
    """Return the frame of the pages inside of Airflow's page, after its first drawing."""
    element = page.locator("iframe[src*='tallystick/']").element_handle()
    assert element is not None
    found = element.content_frame()
    assert found is not None
    found.locator("html[data-drawn]").wait_for(state="attached")
    return found


@scenario("pages")
def pages(driver: Driver) -> Seen:
    """Commit days 1 and 3, look at all views in the DAG's tab, fill the gap by the button, and look again."""
    driver.switch(on=True)
    for run, (first, last) in RUNS.items():
        driver.trigger(run, start=day(first), end=day(last))
        driver.wait(run)
    before = driver.status
    with open_pages(driver.api, DAG) as browser:
        page, seen = browser.page, Seen(before, before, [], driver.expected(1, 2, 3))
        page.on("request", lambda request: seen.requests.append(request.url))
        page.on("console", lambda m: note(seen, m.type, m.text))
        page.on("pageerror", lambda error: note(seen, "error", str(error)))
        page.goto(f"{browser.url}/dags/{DAG}/plugin/lake")
        frame = frame_of(page)
        look = looking(seen, frame, browser.picture)
        frame.get_by_role("heading", name="Needs attention").wait_for()
        frame.get_by_text("oldest").first.wait_for()
        look("overview", "main")
        for view, ready in (
            ("commits", "day_1"),
            ("dead-letters", "json"),
            ("lag", "january"),
            (f"interval/{instant(1)}/{instant(2)}", "day_1"),
            (f"compare/{versions(driver)}", "2013-01-03"),
        ):
            frame.evaluate(f"location.hash = '#{view}'")
            frame.locator("main").get_by_text(ready).first.wait_for()
            look(view.partition("/")[0], "main")
        frame.evaluate("location.hash = ''")

        frame.get_by_role("button", name="Fill gap").first.click()
        dialog = frame.get_by_role("dialog")
        dialog.get_by_role("button", name="Trigger run").wait_for()
        look("dialog", "dialog")
        dialog.get_by_role("button", name="Trigger run").click()
        dialog.get_by_text("was triggered").wait_for()
        seen.sent = browser.sent[-1][1]
        wait_until(lambda: not driver.status.gaps, deadline_s=DEADLINE_S, what="a filled gap")
        dialog.get_by_role("button", name="Close").click()
        frame.get_by_text("Nothing needs attention").wait_for()
        look("filled", "main")

        # A link to a run leaves the frame: Airflow's own page shows the run.
        frame.evaluate(f"location.hash = '#interval/{instant(2)}/{instant(3)}'")
        link = frame.get_by_role("link", name="manual__").first
        seen.filled_by = link.inner_text()
        link.click()
        page.wait_for_url(f"**/dags/{DAG}/runs/{quote(seen.filled_by, safe='')}**")
        seen.linked = page.url

        # The tab of a run, and the page of all lakes.
        page.goto(f"{browser.url}/dags/{DAG}/runs/day_3/plugin/lake_run")
        look = looking(seen, frame_of(page), browser.picture)
        look("run", "main")
        page.evaluate("localStorage.setItem('theme', 'dark')")
        page.goto(f"{browser.url}/plugin/lakes")
        lakes = page.frame_locator("iframe[src*='tallystick/']")
        lakes.get_by_role("link", name=DAG).first.wait_for()
        lakes.get_by_text("Loading").first.wait_for(state="hidden")
        seen.texts["lakes"] = lakes.locator("main").inner_text()
        seen.dark = lakes.locator("html").evaluate("page => getComputedStyle(page).backgroundColor")
        browser.picture("lakes")
    driver.wait(seen.filled_by)
    seen.after, seen.rows = driver.status, driver.rows()
    seen.committed = len(read_log(driver.lake, limit=None).commits)
    return seen


def note(seen: Seen, kind: str, text: str) -> None:
    """Keep errors of the browser's console that are of the pages; Airflow's own pages have warnings of their own."""
    if kind == "error" and ("tallystick" in text or "Content Security Policy" in text):
        seen.complaints.append(text)


def looking(seen: Seen, frame: Frame, picture: Callable[[str], None]) -> Callable[[str, str], None]:
    """Return a function that keeps the text of a part of the page, and a screenshot."""

    def look(view: str, part: str) -> None:
        frame.get_by_text("Loading").first.wait_for(state="hidden")
        seen.texts[view] = frame.locator(part).first.inner_text()
        picture(f"lake-{view}")

    return look


def instant(number: int) -> str:
    """Return the beginning of a day as addresses have it."""
    return f"2013-01-{number:02d}T00:00:00.000Z"


def versions(driver: Driver) -> str:
    """Return the versions of the first and the last commit as the address of a comparison has them."""
    commits = read_log(driver.lake, limit=None).commits
    return f"{commits[-1].version}/{commits[0].version}"


def test_the_overview_shows_the_figures_of_the_ledger(pages: Seen) -> None:
    text = " ".join(pages.texts["overview"].split())
    assert len(pages.before.gaps) == 1
    assert f"Committed {len(pages.before.committed)} intervals" in text
    assert f"Gaps 1 {pages.before.gaps[0].offsets} offsets" in text
    totals = pages.before.totals
    assert f"Records {totals.records} 1 topic, 2 partitions" in text
    assert f"Dead letters {totals.dead_letters}" in text
    assert "2013-01-02 to 2013-01-03" in text


def test_each_view_shows_its_part_of_the_lake(pages: Seen) -> None:
    texts = {view: " ".join(text.split()) for view, text in pages.texts.items()}
    assert all(run in texts["commits"] for run in RUNS)
    assert "january" in texts["lag"]
    (first, *_) = pages.before.committed
    assert first.totals is not None
    assert f"{first.totals.records}" in texts["interval"]
    assert "day_1" in texts["interval"]
    assert f"{pages.before.totals.dead_letters}" in texts["dead-letters"]
    assert "2013-01-03 to 2013-01-04" in texts["compare"]
    assert "2013-01-03" in texts["run"]
    assert DAG in texts["lakes"]


def test_the_button_sends_the_request_of_airflows_own_form_and_fills_the_gap(pages: Seen) -> None:
    at = datetime.fromisoformat(pages.sent["logical_date"]).astimezone(UTC)
    form = {"mode": "process", "from": instant(2), "to": instant(3)}
    assert pages.sent == trigger_body({**defaults(), **form}, at=at)
    assert pages.after.gaps == ()
    assert pages.rows == pages.expected
    (filled,) = [one for one in pages.after.committed if one.interval.start == day(2)]
    assert filled.owner.run == pages.filled_by
    assert "Nothing needs attention" in pages.texts["filled"]


def test_a_link_to_a_run_opens_airflows_own_page(pages: Seen) -> None:
    assert f"/dags/{DAG}/runs/" in pages.linked
    assert "/plugin/" not in pages.linked


def test_the_page_asks_no_other_host_and_breaks_no_rule_of_its_own(pages: Seen) -> None:
    hosts = {url.split("/")[2] for url in pages.requests if url.startswith(("http:", "https:"))}
    assert len(hosts) == 1, hosts
    assert pages.complaints == []


def test_the_page_follows_airflows_dark_theme(pages: Seen) -> None:
    red, green, blue = (
        int(part) for part in pages.dark.removeprefix("rgb(").rstrip(")").split(",")
    )
    assert max(red, green, blue) < 60, pages.dark
