"""The problems of an audit: the first counter-examples of each kind as text, and the number of all of them."""

from __future__ import annotations

from collections import Counter

SHOWN = 3


class Problems:
    """Counter-examples by kind. The texts of the first `SHOWN` of each kind are stored."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._texts: list[tuple[str, str]] = []

    def add(self, kind: str, text: str) -> None:
        """Add one counter-example."""
        self._counts[kind] += 1
        if self._counts[kind] <= SHOWN:
            self._texts.append((kind, text))

    def count(self, kind: str) -> int:
        """Return the number of counter-examples of a kind."""
        return self._counts[kind]

    def lines(self) -> tuple[str, ...]:
        """Return the texts in the order in which they were added, and the number of those that are not shown."""
        texts = [f"{kind}: {text}" for kind, text in self._texts]
        more = ((kind, n - SHOWN) for kind, n in self._counts.items() if n > SHOWN)
        return (*texts, *(f"{kind}: and {n} more" for kind, n in more))
