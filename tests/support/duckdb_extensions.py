"""Connections of DuckDB without its check of the extensions' signatures, which takes 0.4 CPU seconds for each.

The check is DuckDB's own. Tests of the connection itself, and of `tally sql`, keep it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import duckdb

UNCHECKED = {"allow_unsigned_extensions": True}


@contextmanager
def signatures_unchecked() -> Iterator[None]:
    """Open DuckDB's connections without that check, as long as the block runs."""
    connect = duckdb.connect

    def unchecked(*database: Any, config: Mapping[str, Any], **more: Any) -> Any:
        return connect(*database, config={**config, **UNCHECKED}, **more)

    with patch.object(duckdb, "connect", unchecked):
        yield
