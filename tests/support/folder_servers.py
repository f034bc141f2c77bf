"""Ends fixtures of the scope "package" with the last test of their folder: an idle broker costs a CPU second per minute.

For pytest, only Python packages end, and the folders of the tests are none: such fixtures would last until the end of all
tests. A plugin of pytest; tests/conftest.py loads it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

_RUNNING = pytest.StashKey[dict[pytest.FixtureDef[Any], pytest.FixtureRequest]]()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Note the fixtures that end with a folder."""
    try:
        return (yield)
    finally:
        if fixturedef.scope == "package":
            request.config.stash.setdefault(_RUNNING, {})[fixturedef] = request


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """End the fixtures of the folders that the next test is not in."""
    yield
    running = item.config.stash.get(_RUNNING, {})
    following = "" if nextitem is None else nextitem.nodeid
    for fixture in reversed([*running]):
        if not following.startswith((f"{fixture.baseid}/", f"{fixture.baseid}::")):
            # What depends on it ends before it. If it is requested again, it starts again.
            fixture.finish(running.pop(fixture))  # type: ignore[arg-type]
