"""The language of code and pages: words that the field's documentation does not use appear in no file.

docs/glossary.md has the terms. A word is found in names as well: `told_rows` contains `told`.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3]
# The word, and what to write instead.
BANNED = {
    "told": "returned, reported, message",
    "tell": "report, return, name",
    "tells": "reports, returns, names",
    "said": "stated, requested",
    "say": "state, report",
    "says": "states, reports",
    "whoever": "the user, the caller, any process that",
    "whatever": "any, regardless of",
    "nobody": "no user, no process",
    "somebody": "a user, a process",
    "anybody": "any user, any process",
    "stand": "be, remain",
    "stands": "is, remains",
    "stood": "was, remained",
    "beside": "next to, at the same time as",
    "mend": "fix",
    "mends": "fixes",
    "mended": "fixed",
    "wish": "request",
    "wishes": "requests",
    "deed": "step",
    "deeds": "steps",
    "doors": "user actions",
    "story": "scenario",
    "stories": "scenarios",
    "struck": "killed",
    "strike": "kill",
    "judge": "check",
    "judged": "checked",
    "desk": "driver",
    "of now": "current",
    "whereof": "of which",
    "thereof": "of it",
}
# `tell` is also the method that returns the position in a file.
WORDS = re.compile(
    rf"(?<![a-z])(?!tell\((?:self)?\))({'|'.join(map(re.escape, BANNED))})(?![a-z])", re.IGNORECASE
)
SUFFIXES = (".py", ".md", ".toml", ".yml", ".sh")
OWN = Path(__file__).relative_to(PROJECT).as_posix()


def found_in(text: str) -> list[str]:
    """Return the lines with a banned word, each with its number and the words to use instead."""
    return [
        f"{number}: {match[1].lower()} ({BANNED[match[1].lower()]}): {line.strip()[:90]}"
        for number, line in enumerate(text.splitlines(), 1)
        for match in WORDS.finditer(line)
    ]


def files() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=PROJECT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    kept = [name for name in listed if name.endswith(SUFFIXES) or Path(name).name == "Makefile"]
    return [name for name in kept if name != OWN and (PROJECT / name).is_file()]


def test_no_file_has_a_banned_word() -> None:
    names = files()
    assert len(names) > 500, "the search finds the files"
    found = [
        f"{name}:{line}"
        for name in names
        for line in found_in(f"{name}\n" + (PROJECT / name).read_text())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("def told(self): ...", 1),
        ("rows_told = 1", 1),
        ("Nobody tells it.", 2),
        ("the columns of now", 1),
        ("sink.tell() >= 3", 0),
        ("def tell(self) -> int:", 0),
        ("tell(someone)", 1),
        ("essays, storytelling, understand, recommend, besides", 0),
    ],
)
def test_a_banned_word_is_found_in_prose_and_in_names(text: str, count: int) -> None:
    assert len(found_in(text)) == count
