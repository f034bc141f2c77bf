"""Colours of single words, on a terminal only. A colour never is the only sign of anything: the word is always there.

NO_COLOR switches colours off, FORCE_COLOR on, also in a pipe; NO_COLOR takes precedence. JSON and CSV never have colours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Literal, TextIO

Meaning = Literal["good", "open", "bad"]
_STYLES: Mapping[Meaning, str] = {"good": "green", "open": "yellow", "bad": "bold red"}
_STATES: Mapping[str, Meaning] = {"committed": "good", "granted": "open", "replacing": "open"}


def enabled(stream: TextIO) -> bool:
    """Return True if texts on this stream have colours."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def painted(text: str, meaning: Meaning, *, stream: TextIO | None = None) -> str:
    """Return the text in the colour of a meaning, if the stream (default: standard output) has colours.

    Paint after the layout: the escape sequences would count as columns.
    """
    if not enabled(stream or sys.stdout):
        return text
    from rich.color import ColorSystem
    from rich.style import Style

    return Style.parse(_STYLES[meaning]).render(text, color_system=ColorSystem.STANDARD)


def state(name: str) -> str:
    """Return the name of an interval's state in its colour."""
    return painted(name, _STATES[name])


def first_word(text: str, meaning: Meaning, *, stream: TextIO | None = None) -> str:
    """Return the text with its first word in the colour of a meaning."""
    word, space, rest = text.partition(" ")
    return f"{painted(word, meaning, stream=stream)}{space}{rest}"
