"""Lines of a task's log that fit: Airflow's log view does not wrap by default, and shows about 110 columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

WIDTH_MAX = 100
_INDENT = "  "
# An interval is one word, although it has a space in it.
_WORD = re.compile(r"\[\S+, \S+\)\S*|\S+")


def fit(line: str, *, width: int = WIDTH_MAX) -> Iterator[str]:
    """Break a line between words; later parts are indented. A long word stays whole, so that it can be copied."""
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
    """Write each line with a log method, in parts that fit. Text is an argument, so `%` in it stays as it is."""
    for line in lines:
        for part in fit(line):
            write("%s", part)
