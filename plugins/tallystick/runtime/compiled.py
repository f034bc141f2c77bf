"""Compiled loops: compile a function with numba once per machine, or once per process if no cache can be written.

Importing this module imports numba. Only the code that reads a log imports it.
"""

# mypy does not see the types of numba's decorators.
# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def kernel(signature: Any = None) -> Callable[[F], F]:
    """Return a decorator that compiles a function for `signature` at once, or on its first call if there is none.

    The compiled function runs without the interpreter's lock. numba caches it next to the function's file, in
    NUMBA_CACHE_DIR or in the user's cache folder. If none of them is writable, every process compiles it again. Raises
    numba's error if numba cannot compile the function.
    """

    def decorate(function: F) -> F:
        try:
            return cast("F", numba.njit(signature, cache=True, nogil=True)(function))
        except RuntimeError as error:
            # Raised if the install is read-only and there is no NUMBA_CACHE_DIR and no home; numba has no class for it.
            if "no locator available" not in str(error):
                raise
            return cast("F", numba.njit(signature, nogil=True)(function))

    return decorate
