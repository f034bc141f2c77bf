"""The cache of answers: it keeps what was used last, and never more than its size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystick.catalog.cache import SizedCache


def test_what_was_not_used_for_the_longest_time_is_dropped_first() -> None:
    cache = SizedCache[bytes](size_max=10, size=len)
    cache.put("a", b"1234")
    cache.put("b", b"1234")
    assert cache.get("a") == b"1234"
    cache.put("c", b"1234")
    assert [cache.get(key) for key in "abc"] == [b"1234", None, b"1234"]


def test_a_value_that_is_too_large_alone_is_not_kept_and_drops_nothing() -> None:
    cache = SizedCache[bytes](size_max=10, size=len)
    cache.put("a", b"1234")
    cache.put("b", b"12345678901")
    assert (cache.get("a"), cache.get("b")) == (b"1234", None)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12))))
def test_the_kept_values_fit_the_size(puts: list[tuple[int, int]]) -> None:
    cache = SizedCache[int](size_max=10, size=lambda value: value)
    for key, value in puts:
        cache.put(key, value)
        kept = [found for one in range(6) if (found := cache.get(one)) is not None]
        assert sum(kept) <= 10
        assert value > 10 or cache.get(key) == value
