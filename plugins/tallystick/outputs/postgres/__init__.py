"""A PostgreSQL table that holds the committed rows: `declared` for DAG files; `table` does the work."""

from __future__ import annotations

from tallystick.outputs.postgres.declared import PostgresOutput

__all__ = ["PostgresOutput"]
