"""The documentation as a site, as `make docs` builds it: complete, no broken link, nothing from another host."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import Browser, expect, sync_playwright

from docs.generate.site import links, navigation, pages, rewritten
from support.airflow_pages import DEADLINE_MS, FLAGS, chromium

PROJECT = Path(__file__).parents[2]
FOLDERS = ("docs", "dags", "spark_jobs", "examples")
# What GitHub's Markdown and the site must agree on: the number of these in each page.
SHAPES = {"h2", "h3", "table", "tr", "ul", "ol", "li", "pre"}
ASSETS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


def copied_project(folder: Path) -> Path:
    """Copy what the site is made of. Safe to repeat: each test has a folder of its own."""
    for name in FOLDERS:
        shutil.copytree(PROJECT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (*PROJECT.glob("*.md"), PROJECT / "zensical.toml"):
        shutil.copy(path, folder)
    return folder


def build(project: Path) -> subprocess.CompletedProcess[str]:
    """Run the command of `make docs` on a project."""
    command = [sys.executable, "-m", "docs.generate.site", str(project)]
    return subprocess.run(
        command,
        cwd=PROJECT,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site once for all tests."""
    project = copied_project(tmp_path_factory.mktemp("project"))
    ended = build(project)
    assert ended.returncode == 0, ended.stdout
    return project / "build" / "site"


@dataclass
class BuiltPage(HTMLParser):
    """One page of the site: its links, its anchors, what it loads, and the shapes of its article."""

    text: str
    links: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    assets: list[str] = field(default_factory=list)
    shapes: Counter[str] = field(default_factory=Counter)
    in_article: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element. Safe to repeat: a page is read once."""
        named = dict(attrs)
        self.in_article |= tag == "article"
        self.anchors |= {name for name in (named.get("id"), named.get("name")) if name}
        if tag == "a" and named.get("href"):
            self.links.append(str(named["href"]))
        if tag in ASSETS and named.get(ASSETS[tag]):
            self.assets.append(str(named[ASSETS[tag]]))
        if self.in_article and tag in SHAPES:
            self.shapes[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        """Note the end of the article. Safe to repeat: a page is read once."""
        self.in_article &= tag != "article"


@pytest.fixture(scope="module")
def built(site: Path) -> dict[Path, BuiltPage]:
    """Read every page of the site."""
    return {path: BuiltPage(path.read_text()) for path in sorted(site.rglob("*.html"))}


def test_every_page_of_docs_is_in_the_site_and_once_in_the_navigation(site: Path) -> None:
    listed = list(
        navigation(tomllib.loads((PROJECT / "zensical.toml").read_text())["project"]["nav"])
    )
    assert sorted(listed) == sorted(pages(PROJECT))
    missing = [page for page in listed if not (site / page).with_suffix(".html").is_file()]
    assert not missing
    assert not (site / "generate" / "site.py").exists(), "only what readers need is in the site"


def test_every_link_of_every_page_leads_to_a_file_and_an_anchor_of_the_site(
    site: Path, built: dict[Path, BuiltPage]
) -> None:
    broken = []
    for path, page in built.items():
        if path.name == "404.html":  # its links begin with /, for a site at the root of a server
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.is_relative_to(site) or not target.is_file():
                broken.append(f"{path.relative_to(site)}: no file: {link}")
            elif anchor and target in built and anchor not in built[target].anchors:
                broken.append(f"{path.relative_to(site)}: no anchor: {link}")
    assert not broken, "\n".join(broken)
    assert sum(len(page.links) for page in built.values()) > 1000, "the search finds the links"


def test_a_link_to_a_file_outside_docs_leads_to_a_page_of_it(site: Path) -> None:
    example = (site / "how-to" / "example-ads.html").read_text()
    assert 'href="../repository/dags/examples/ads.py.html"' in example
    assert "replay_dag" in (site / "repository" / "dags" / "examples" / "ads.py.html").read_text()


def test_no_page_loads_anything_from_another_host(site: Path, built: dict[Path, BuiltPage]) -> None:
    loaded = {asset for page in built.values() for asset in page.assets}
    assert any(asset.endswith(".css") for asset in loaded)
    assert any(asset.endswith(".js") for asset in loaded)
    assert not [asset for asset in loaded if urlsplit(asset).netloc]
    for sheet in site.rglob("*.css"):
        found = re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^\"')]*", sheet.read_text())
        assert not found, sheet


def test_the_search_index_has_names_of_the_api_commands_and_errors(site: Path) -> None:
    items = json.loads((site / "search.json").read_text())["items"]
    titles = {(item["location"], re.sub(r"<[^>]+>", "", item["title"])) for item in items}
    assert ("reference/api.html#replay_dag", "replay_dag") in titles
    assert ("reference/api.html#pipeline", "Pipeline") in titles
    assert any("tally doctor" in re.sub(r"<[^>]+>", "", item["text"]) for item in items)
    assert (
        "reference/errors.html#outside_retention-outsideretention",
        "outside_retention (OutsideRetention)",
    ) in titles


@pytest.mark.parametrize("page", sorted(pages(PROJECT)))
def test_a_page_has_the_same_shapes_as_on_github(
    page: str, site: Path, built: dict[Path, BuiltPage]
) -> None:
    """Python-Markdown reads some lists and blocks differently, so that a page would lose all below them."""
    tokens = MarkdownIt("commonmark").enable("table").parse((PROJECT / "docs" / page).read_text())
    tags = (
        "pre" if token.type in ("fence", "code_block") else token.tag
        for token in tokens
        if token.nesting >= 0
    )
    expected = Counter(tag for tag in tags if tag in SHAPES)
    found = built[(site / page).with_suffix(".html")].shapes
    assert found == expected


@pytest.mark.parametrize(
    ("file", "before", "after", "message"),
    [
        (
            "docs/index.md",
            "(quickstart/demo.md)",
            "(quickstart/gone.md)",
            "docs/index.md:3: no such file",
        ),
        (
            "docs/how-to/lake-pages.md",
            "lake-overview.png",
            "gone.png",
            "no such file: ../images/gone.png",
        ),
        ("docs/how-to/example-ads.md", "examples/ads.py", "examples/gone.py", "no such file"),
        (
            "zensical.toml",
            '{ "Metrics" = "how-to/metrics.md" },',
            "",
            "docs/how-to/metrics.md: not in `nav`",
        ),
        (
            "docs/how-to/dead-letters.md",
            "read-protobuf.md#dead-letters",
            "read-protobuf.md#gone",
            "anchor",
        ),
    ],
    ids=["page", "image", "file-outside-docs", "navigation", "anchor"],
)
def test_a_broken_link_or_anchor_fails_the_command_and_is_named(
    file: str, before: str, after: str, message: str, tmp_path: Path
) -> None:
    changed = copied_project(tmp_path) / file
    text = changed.read_text()
    assert before in text
    changed.write_text(text.replace(before, after))
    ended = build(tmp_path)
    assert ended.returncode == 1
    assert message in re.sub(r"\x1b\[[0-9;]*m", "", ended.stdout)
    assert "Traceback" not in ended.stdout


def test_links_in_code_are_no_links_and_lists_are_read_as_on_github() -> None:
    page = "See:\n- [a](../../README.md#x)\n  b\n\n```sh words\n[b](c.md)\n```\n\n`[d](e.md)` [f](g.md) [h](#i)\n"
    assert list(links(page)) == [(2, "../../README.md#x"), (9, "g.md")]
    expected = (
        page.replace("See:\n", "See:\n\n").replace("sh words", "sh").replace("  b\n", "    b\n")
    )
    expected = expected.replace("../../README.md", "../repository/README.md")
    assert rewritten("docs/how-to/page.md", page) == expected


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start the system's Chromium; without it the tests are skipped with the reason."""
    program = chromium()
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=[*FLAGS])
        yield started
        started.close()


def test_a_search_finds_a_name_of_the_api_without_a_server(site: Path, browser: Browser) -> None:
    page = browser.new_page()
    page.set_default_timeout(DEADLINE_MS)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((site / "how-to" / "alerts.html").as_uri())
    page.get_by_role("button", name="Search").first.click()
    page.get_by_placeholder("Search").fill("replay_dag")
    found = page.locator("a[href*='reference/api.html'][href$='#replay_dag']").first
    expect(found).to_be_visible(timeout=DEADLINE_MS)
    found.click()
    page.wait_for_url("**/reference/api.html*#replay_dag")
    assert not [url for url in requests if urlsplit(url).scheme in ("http", "https")]
    page.close()


@pytest.mark.parametrize(
    "name", ["reference/declaration", "reference/guarantees", "how-to/lake-pages"]
)
def test_no_page_is_wider_than_a_phone(name: str, site: Path, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto((site / f"{name}.html").as_uri())
    width = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert page.evaluate(width), "a table or a block of code scrolls inside of its box"
    images = (
        "[...document.querySelectorAll('article img')].every(i => i.complete && i.naturalWidth > 0)"
    )
    assert page.evaluate(images)
    page.close()
