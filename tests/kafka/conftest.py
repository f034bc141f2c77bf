"""Tests of planning and reading run on a real broker."""

from __future__ import annotations

from support.brokers import broker, client

__all__ = ["broker", "client"]
