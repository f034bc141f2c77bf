"""Tests of the PostgreSQL output run on a real server."""

from __future__ import annotations

from support.postgres_tables import database, server

__all__ = ["database", "server"]
