"""Compiled loops work if no cache can be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import pytest

from tallystick.engine.decode.json import scan as json_scan
from tallystick.runtime.compiled import kernel


@pytest.fixture
def without_cache() -> Callable[..., Any]:
    """Return a function without a file: numba finds no place for its cache, as in a read-only installation."""
    space: dict[str, Any] = {}
    exec(compile("def twice(x):\n    return 2 * x\n", "/nowhere/twice.py", "exec"), space)
    twice: Callable[..., Any] = space["twice"]
    with pytest.raises(RuntimeError, match="no locator available"):
        numba.njit(cache=True)(twice)
    return twice


def test_a_kernel_is_compiled_even_without_a_place_for_its_cache(
    without_cache: Callable[..., Any],
) -> None:
    assert kernel()(without_cache)(21) == 42
    assert kernel(numba.types.int64(numba.types.int64))(without_cache)(21) == 42
    assert json_scan.compiled(without_cache)(21) == 42


def test_a_kernel_that_numba_cannot_compile_is_not_hidden() -> None:
    def impossible(x: Any) -> Any:
        return x.nothing_that_numba_knows

    with pytest.raises(numba.TypingError, match="nothing_that_numba_knows"):
        kernel(numba.types.int64(numba.types.int64))(impossible)
