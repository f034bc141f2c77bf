"""Airflow's pages in a headless Chromium: press buttons as a person does, and record the requests of the pages.

The browser is the system's (Debian's package chromium): Playwright's own is not in a package registry.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, Request, Response, sync_playwright

from tallystick_devstack.airflow_api import AirflowApi

# Screenshots remain after the test run; git ignores the folder.
PICTURES = Path(__file__).parents[2] / "build" / "browser"
INSTALL = "apt-get install --no-install-recommends chromium"
FLAGS = (
    "--no-sandbox",  # it does not start as root with a sandbox
    *("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
# For a page on a machine that runs all tests; a deadline, not a wait.
DEADLINE_MS = 300_000.0


def chromium() -> str:
    """Return the path of the system's Chromium. Without it the test is skipped, or fails if CI is set."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is not None:
        return path
    missing = f"no Chromium on this machine, so no button was pressed: {INSTALL}"
    if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
        pytest.fail(missing)
    pytest.skip(missing)


@dataclass(frozen=True)
class Pressed:
    """The request that a page sent when a button was pressed, and Airflow's answer."""

    sent: dict[str, Any]
    answer: dict[str, Any]

    @property
    def run_id(self) -> str:
        """The id of the created run."""
        return str(self.answer["dag_run_id"])


@dataclass
class Pages:
    """Airflow's pages in one browser; `sent` contains each body that a page posted, with its address."""

    page: Page
    url: str
    pictures: Path
    sent: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def note(self, request: Request) -> None:
        """Record a request body of a page, except logins and dry runs, which change nothing."""
        if request.method != "POST" or "/api/v2/" not in request.url:
            return
        body: dict[str, Any] = json.loads(request.post_data or "{}")
        if not body.get("dry_run") and not request.url.endswith("/dry_run"):
            self.sent.append((request.url.partition("/api/v2")[2], body))

    def picture(self, name: str) -> None:
        """Save a screenshot of the page. Safe to repeat: the file is overwritten."""
        self.pictures.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=self.pictures / f"{name}.png", full_page=True)

    def log_in(self, user: str, password: str) -> None:
        """Fill in the form of the login page."""
        self.page.goto(self.url)
        self.page.get_by_label("Username").fill(user)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_role("link", name="Dags").first.wait_for()

    def trigger(self, dag: str, picture: str, fields: Mapping[str, str]) -> Pressed:
        """Press Trigger with the proposed form, changed in these fields only."""
        form = self._form(dag)
        self._fill(form, fields)
        self.picture(f"{picture}-form")
        return self._press(form.get_by_role("contentinfo").get_by_role("button", name="Trigger"))

    def backfill(
        self,
        dag: str,
        picture: str,
        first: datetime,
        last: datetime,
        fields: Mapping[str, str],
        *,
        override: bool = False,
    ) -> Pressed:
        """Press Trigger, choose Backfill, fill in its dates and these fields; `override` ticks the box for the fields."""
        form = self._form(dag)
        form.get_by_text("Backfill", exact=True).first.click()
        form.get_by_text("Run Backwards").wait_for()
        for at in (first, last):
            # The first of the two fields that is still empty.
            form.get_by_text("Select date and time").first.click()
            picker = self.page.get_by_placeholder("YYYY/MM/DD")
            picker.fill(f"{at:%Y/%m/%d}")
            picker.press("Enter")
            clock = self.page.get_by_placeholder("HH:mm")
            clock.fill(f"{at:%H:%M}")
            clock.press("Enter")
            self.page.keyboard.press("Escape")
            picker.wait_for(state="hidden")
        if override:
            # The box's label; the help text of a parameter names it too.
            form.get_by_text("Override parameters on existing runs", exact=True).first.click()
        self._fill(form, fields)
        self.picture(f"{picture}-form")
        return self._press(form.get_by_role("button", name="Run Backfill"))

    def clear(self, dag: str, run_id: str, task: str, picture: str) -> Pressed:
        """Press Clear on a task's page, and confirm the unchanged dialog."""
        self.page.goto(f"{self.url}/dags/{dag}/runs/{quote(run_id, safe='')}/tasks/{task}")
        self.page.get_by_role("button", name="Press shift+c to clear").click()
        dialog = self.page.get_by_role("dialog")
        dialog.get_by_text("Affected Tasks").first.wait_for()
        self.picture(f"{picture}-dialog")
        return self._press(dialog.get_by_role("button", name="Confirm"))

    def show_run(self, dag: str, run_id: str, picture: str) -> None:
        """Open the page of a run, and save a screenshot."""
        self.page.goto(f"{self.url}/dags/{dag}/runs/{quote(run_id, safe='')}")
        self.page.get_by_role("link", name="Task Instances").first.wait_for()
        self.picture(picture)
        self._leave()

    def _form(self, dag: str) -> Locator:
        # Each tab of a DAG has the button. Without charts, this one takes half of the first one's CPU time.
        self.page.goto(f"{self.url}/dags/{dag}/tasks")
        self.page.get_by_role("button", name="Trigger Dag").click()
        form = self.page.get_by_role("dialog").filter(has_text="Run Parameters")
        form.get_by_text("From (Trigger only)").wait_for()
        return form

    def _fill(self, form: Locator, fields: Mapping[str, str]) -> None:
        for name, value in fields.items():
            if name == "mode":
                form.get_by_role("combobox", name="Mode").click()
                self.page.get_by_role("option", name=value, exact=True).click()
            else:
                box = form.locator(f"input[name=element_{name}]")
                box.fill(value)
                box.press("Tab")

    def _press(self, button: Locator) -> Pressed:
        """Press a button that sends a request, wait for the answer, and return both."""
        before = len(self.sent)

        def is_answer(answer: Response) -> bool:
            # Answers to dry runs of the same dialog may still arrive.
            return len(self.sent) > before and answer.request.post_data_json == self.sent[-1][1]

        with self.page.expect_response(is_answer) as answered:
            button.click()
        assert answered.value.ok, answered.value.text()
        pressed = Pressed(self.sent[-1][1], answered.value.json())
        self._leave()
        return pressed

    def _leave(self) -> None:
        """Open an empty page: Airflow's pages poll every few seconds, which slows down the run."""
        self.page.goto("about:blank")


@contextmanager
def open_pages(api: AirflowApi, pictures: str) -> Iterator[Pages]:
    """Open a browser with an empty profile, and log in."""
    program = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*FLAGS])
        try:
            page = browser.new_page(
                viewport={"width": 1400, "height": 1200},
                timezone_id="UTC",
                reduced_motion="reduce",  # without a GPU, each frame of an animation is drawn by the CPU
            )
            page.set_default_timeout(DEADLINE_MS)
            pages = Pages(page, api.base_url, PICTURES / pictures)
            page.on("request", pages.note)
            pages.log_in(api._login["username"], api._login["password"])
            try:
                yield pages
            except BaseException:
                pages.picture("failure")
                raise
        finally:
            browser.close()
