"""How the stack tells a person what it is doing: one line per event, on stderr."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str], None]


def say(line: str) -> None:
    """Tell a person on stderr what happens."""
    from rich.console import Console

    Console(stderr=True, highlight=False, soft_wrap=True).print(line, markup=False)
