"""Compiled loops: one way to have numba compile a function once per machine, also where nothing can be written.

Importing this module imports numba: only what reads a log does so.
"""

# numba's decorators are beyond what mypy sees.
# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def kernel(signature: Any = None) -> Callable[[F], F]:
    """Return the decorator that compiles a function for `signature` at once, or without one when it is first called.

    It runs without the interpreter's lock. The result is kept beside the function's file, in NUMBA_CACHE_DIR or in the
    user's cache folder; where none of them can be written, every process compiles for itself. Raises what numba says of
    a function that it cannot compile.
    """

    def decorate(function: F) -> F:
        try:
            return cast("F", numba.njit(signature, cache=True, nogil=True)(function))
        except RuntimeError as error:
            # A read-only install without NUMBA_CACHE_DIR and home; numba has no class of its own for it.
            if "no locator available" not in str(error):
                raise
            return cast("F", numba.njit(signature, nogil=True)(function))

    return decorate
