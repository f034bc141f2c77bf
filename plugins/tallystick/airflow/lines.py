"""Breaks log lines to fit Airflow's log view, which does not wrap by default and shows about 110 columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

WIDTH_MAX = 100
_INDENT = "  "
# An interval counts as one word, although it contains a space.
_WORD = re.compile(r"\[\S+, \S+\)\S*|\S+")


def fit(line: str, *, width: int = WIDTH_MAX) -> Iterator[str]:
    """Break a line between words and indent the later parts. A long word is not broken, so that it can be copied."""
    indent = line[: len(line) - len(line.lstrip())]
    shown = ""
    for word in _WORD.findall(line):
        if not shown:
            shown = indent + word
        elif len(shown) + 1 + len(word) <= width:
            shown += f" {word}"
        else:
            yield shown
            shown = f"{indent}{_INDENT}{word}"
    yield shown


def log_lines(write: Callable[..., None], lines: Iterable[str]) -> None:
    """Write each line with a log method, in parts that fit. The text is an argument, so a `%` in it is not expanded."""
    for line in lines:
        for part in fit(line):
            write("%s", part)
