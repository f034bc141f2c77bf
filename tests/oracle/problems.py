"""The problems that were found: the first counter-examples of each kind in words, all of them counted."""

from __future__ import annotations

from collections import Counter

SHOWN = 3


class Problems:
    """Kinds are words of the promise; of each, the first few counter-examples are kept."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._said: list[tuple[str, str]] = []

    def say(self, kind: str, text: str) -> None:
        """Note one counter-example."""
        self._counts[kind] += 1
        if self._counts[kind] <= SHOWN:
            self._said.append((kind, text))

    def count(self, kind: str) -> int:
        """How many counter-examples of a kind there were."""
        return self._counts[kind]

    def told(self) -> tuple[str, ...]:
        """All kinds in the order in which they were found, with what was not kept as a number."""
        lines = [f"{kind}: {text}" for kind, text in self._said]
        more = ((kind, n - SHOWN) for kind, n in self._counts.items() if n > SHOWN)
        return (*lines, *(f"{kind}: and {n} more" for kind, n in more))
