"""The demo's output: lines with the seconds since the start, and a table at the end; 100 columns."""

from __future__ import annotations

import textwrap
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WIDTH = 100
_INDENT = " " * 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One user action: what was done, the result, and how long it took; `passed` if everything was as expected."""

    action: str
    done: str
    result: str
    elapsed_s: float
    passed: bool = True


class Console:
    """The demo's standard output; lines of several threads do not mix."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def log(self, text: str) -> None:
        """Print a line with the seconds since the start."""
        clock = f"{self.elapsed_s:6.1f} s  "
        self.write("\n".join(textwrap.wrap(clock + text, WIDTH, subsequent_indent=_INDENT)))

    def heading(self, text: str) -> None:
        """Print a heading."""
        self.write(f"\n== {text} {'=' * max(0, WIDTH - len(text) - 4)}")

    def write(self, text: str) -> None:
        """Print text unchanged."""
        with self._lock:
            print(text, flush=True)


def steps_table(steps: Sequence[Step]) -> Iterable[str]:
    """Return the table of all user actions, as lines of text."""
    widths = (12, 37, 38, 4)
    rows = [("action", "what was done", "result", "s")]
    rows += [
        (s.action, s.done, ("" if s.passed else "BAD: ") + s.result, f"{s.elapsed_s:.0f}")
        for s in steps
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
