"""The two ends of a round that prove nothing, or that the guarantee is violated."""

from __future__ import annotations


class MissedError(Exception):
    """The moment did not occur, or its victim had ended: the round proves nothing and is not counted."""


class ViolationError(Exception):
    """The guarantee is violated; the text is the counter-example."""
