"""What the demo tells while it runs: lines with the seconds since the start, and a table at the end; 100 columns."""

from __future__ import annotations

import textwrap
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WIDTH = 100
_INDENT = " " * 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """One door: what was done at it, what happened, how long it took; `held` where everything was as it must be."""

    door: str
    done: str
    message: str
    elapsed_s: float
    held: bool = True


class Story:
    """The demo's voice; lines of several threads do not mix."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        """Tell one thing."""
        clock = f"{self.elapsed_s:6.1f} s  "
        self.show("\n".join(textwrap.wrap(clock + text, WIDTH, subsequent_indent=_INDENT)))

    def heading(self, text: str) -> None:
        """Begin a chapter."""
        self.show(f"\n== {text} {'=' * max(0, WIDTH - len(text) - 4)}")

    def show(self, text: str) -> None:
        """Print text as it is."""
        with self._lock:
            print(text, flush=True)


def deeds_table(deeds: Sequence[Deed]) -> Iterable[str]:
    """What each door did, as lines of text."""
    widths = (12, 37, 38, 4)
    rows = [("door", "what was done", "what happened", "s")]
    rows += [
        (d.door, d.done, ("" if d.held else "BAD: ") + d.message, f"{d.elapsed_s:.0f}")
        for d in deeds
    ]
    for number, row in enumerate(rows):
        cells = [
            textwrap.wrap(text, width) or [""] for text, width in zip(row, widths, strict=True)
        ]
        for line in range(max(map(len, cells))):
            parts = [cell[line] if line < len(cell) else "" for cell in cells]
            text = "  ".join(f"{p:<{w}}" for p, w in zip(parts, widths, strict=True))
            yield "  " + text.rstrip()
        if number == 0:
            yield "  " + "  ".join("-" * width for width in widths)
