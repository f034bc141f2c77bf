"""A good lake, built once and copied for each test, to be damaged."""

from __future__ import annotations

from functools import cache

import pytest

from support.small_lake import SmallLake, good_lake


@cache
def _good() -> SmallLake:
    return good_lake()


@pytest.fixture
def small() -> SmallLake:
    return _good().copy()
