"""Prints the progress of the stack for the user: one line per event, on stderr."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str], None]


def print_line(line: str) -> None:
    """Print a line on stderr."""
    from rich.console import Console

    Console(stderr=True, highlight=False, soft_wrap=True).print(line, markup=False)
