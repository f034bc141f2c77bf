"""Refuses calls with a missing or unknown argument by an error with a next step, instead of a bare TypeError."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tallystick.errors import InvalidPipeline, listed

P = ParamSpec("P")
R = TypeVar("R")
_HINTS = {
    "schedule": "add e.g. schedule='@daily', or schedule=None for a DAG without scheduled runs.",
    "start_date": "add e.g. start_date=datetime(2026, 1, 1, tzinfo=UTC): no scheduled interval begins earlier.",
}


def checked_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that a call whose arguments do not fit raises InvalidPipeline with their names."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise _refused(function.__name__, signature, kwargs, error) from None
        return function(*args, **kwargs)

    return wrapped


def _refused(
    name: str, signature: inspect.Signature, given: dict[str, object], error: TypeError
) -> InvalidPipeline:
    known = signature.parameters
    if unknown := [one for one in given if one not in known]:
        near = difflib.get_close_matches(unknown[0], known, 1)
        return InvalidPipeline(
            f"{name}: expected no argument {unknown[0]!r}, found one.",
            hint=f"did you mean {near[0]!r}?" if near else f"use some of {listed(known)}.",
        )
    required = [
        one.name
        for one in known.values()
        if one.kind is one.KEYWORD_ONLY and one.default is one.empty
    ]
    if missing := [one for one in required if one not in given]:
        return InvalidPipeline(
            f"{name}: expected the argument {missing[0]!r}, found none.",
            hint=_HINTS.get(missing[0], f"add {missing[0]}=..."),
        )
    return InvalidPipeline(f"{name}: {error}.", hint="pass one pipeline, and the others by name.")
