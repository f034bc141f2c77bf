"""Builds the documentation of the project in a folder, or here, as a site in build/site: `make docs`.

The pages are plain Markdown, as GitHub shows it. Zensical builds a copy of them: they link to files outside docs/
(examples, the README), which become pages of the site in repository/; docs/ has files that are not for readers; and
Python-Markdown, which Zensical uses, reads some lists and blocks differently.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import zensical

# Code, in which nothing is a link: a fenced block or a span. Or the target of a link or of an image.
CODE_OR_LINK = re.compile(
    r"^ *(?P<fence>```+).*?^ *(?P=fence)|(?P<ticks>`+)(?!`).+?(?P=ticks)(?!`)|\]\((?P<target>[^)\s]+)\)",
    re.MULTILINE | re.DOTALL,
)
NOT_A_FILE = re.compile(r"[a-z][a-z+.-]*:|#", re.IGNORECASE)
# A block that tests read has words after its language; Python-Markdown takes such a block for text.
WORDS_OF_FENCE = re.compile(r"^( *```+[\w-]+) .*$", re.MULTILINE)
LIST_ITEM = re.compile(r"(?:[-*]|\d+\.) +")
LANGUAGES = {".proto": "protobuf", ".py": "python"}


class SiteError(Exception):
    """The site cannot be built. The message has a line per problem."""


def build(project: Path) -> Path:
    """Build the site of a project and return its folder. Raises SiteError for each broken link or anchor.

    Safe to repeat: the copies and the site of an earlier build are deleted first.
    """
    config = tomllib.loads((project / "zensical.toml").read_text())["project"]
    copies, site = project / str(config["docs_dir"]), project / str(config["site_dir"])
    for made in (copies, site):
        shutil.rmtree(made, ignore_errors=True)
    problems = [
        f"docs/{page}: not in `nav` of zensical.toml. Next: add it where a reader expects it"
        for page in sorted(pages(project) - set(navigation(config["nav"])))
    ]
    problems += copy(project, copies)
    shutil.copy(Path(__file__).parent / "iframe-worker.js", copies)
    if problems:
        raise SiteError("\n".join(problems))
    try:
        zensical.build(str(project / "zensical.toml"), {"strict": True, "clean": True})
    except RuntimeError as error:  # a warning; Zensical has printed it
        raise SiteError(f"no site was built: {error}. Next: correct what is named above") from error
    return site


def pages(project: Path) -> set[str]:
    """Return the pages of docs/, as paths below it."""
    docs = project / "docs"
    return {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}


def navigation(nav: list[Any]) -> Iterator[str]:
    """Yield the pages of a navigation in their order, those of its groups too."""
    for item in nav:
        for entry in item.values() if isinstance(item, dict) else [item]:
            if isinstance(entry, str):
                yield entry
            else:
                yield from navigation(entry)


def copy(project: Path, copies: Path) -> list[str]:
    """Copy the pages and each file that they link to; return the links to files that do not exist.

    Safe to repeat: files are overwritten.
    """
    waiting = [f"docs/{page}" for page in sorted(pages(project))]
    seen, broken = set(waiting), []
    while waiting:
        name = waiting.pop()
        copied = copies / place(name)
        copied.parent.mkdir(parents=True, exist_ok=True)
        if copied.suffix != ".md":
            shutil.copyfile(project / name, copied)
            continue
        text = (project / name).read_text()
        if not name.endswith(".md"):
            copied.write_text(listing(name, text))
            continue
        for line, target in links(text):
            file = linked_file(name, target)
            if not (project / file).is_file():
                broken.append(f"{name}:{line}: no such file: {target}")
            elif file not in seen:
                seen.add(file)
                waiting.append(file)
        copied.write_text(rewritten(name, text))
    return broken


def place(name: str) -> str:
    """Return where a file of the project is among the copies. Outside docs/, each file is a page."""
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return f"repository/{name}" if name.endswith(".md") else f"repository/{name}.md"


def links(text: str) -> Iterator[tuple[int, str]]:
    """Yield each link of a page to a file, with the number of its line."""
    for match in CODE_OR_LINK.finditer(text):
        target = match["target"]
        if target is not None and not NOT_A_FILE.match(target):
            yield text.count("\n", 0, match.start("target")) + 1, target


def linked_file(page: str, target: str) -> str:
    """Return the file that a link of a page leads to, as a path below the project."""
    return posixpath.normpath(
        posixpath.join(posixpath.dirname(page), unquote(target.partition("#")[0]))
    )


def rewritten(name: str, text: str) -> str:
    """Return a page with its links to the copies, in the form that Python-Markdown reads as GitHub does."""

    def with_link(match: re.Match[str]) -> str:
        target = match["target"]
        if target is None or NOT_A_FILE.match(target):
            return match[0]
        _, mark, anchor = target.partition("#")
        start = posixpath.dirname(place(name)) or "."
        return f"]({posixpath.relpath(place(linked_file(name, target)), start)}{mark}{anchor})"

    text = CODE_OR_LINK.sub(with_link, WORDS_OF_FENCE.sub(r"\1", text))
    return "\n".join(with_lists(text.split("\n")))


def with_lists(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a page with its lists in the form that Python-Markdown requires.

    An empty line above each list, and above each item after one with empty lines; four spaces before what is in an item.
    """
    width, fenced, loose, above = 0, False, False, ""
    for line in lines:
        if fenced or line.startswith("```"):
            fenced = fenced != line.startswith("```")
            width = 0
        elif item := LIST_ITEM.match(line):
            loose = loose and width > 0
            if above and (loose or not width):
                yield ""
            width = item.end()
        elif not line:
            loose = width > 0
        elif not line.startswith(" " * width):
            width = 0
        above = line
        yield "    " + line[width:] if width and line.startswith(" " * width) else line


def listing(name: str, text: str) -> str:
    """Return the page of a file that is not Markdown: its path and its text."""
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    return f"# {name}\n\n{fence}{LANGUAGES.get(Path(name).suffix, 'text')}\n{text}\n{fence}\n"


if __name__ == "__main__":
    try:
        build(Path(*sys.argv[1:]).absolute())
    except SiteError as error:
        sys.exit(str(error))
