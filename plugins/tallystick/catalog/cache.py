"""A cache in memory, bounded by the sum of its values' sizes. What was not used for the longest time is dropped first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class SizedCache(Generic[V]):
    """Values by key. `size` is called once per value; a value that is larger than `size_max` alone is not kept."""

    def __init__(self, *, size_max: int, size: Callable[[V], int]) -> None:
        self._size_max = size_max
        self._size = size
        self._values: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._total = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> V | None:
        """Return the value of a key, or None."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: V) -> None:
        """Keep a value. Safe to repeat: a key always has the same value."""
        size = self._size(value)
        if size > self._size_max:
            return
        with self._lock:
            _, before = self._values.pop(key, (None, 0))
            self._values[key] = (value, size)
            self._total += size - before
            while self._total > self._size_max:
                _, (_, dropped) = self._values.popitem(last=False)
                self._total -= dropped
