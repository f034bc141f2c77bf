"""The state of the lake for a reader at one moment: one root, and the number of rows in its tables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from examples.demo.pipelines import DEAD_LETTERS_SQL, DemoPipeline
from tallystick.errors import SettingsError
from tallystick.format import keys
from tallystick.format.page import Entry
from tallystick.lake import Lake, Snapshot
from tallystick.runtime import system_runtime
from tallystick.store.open import open_store
from tallystick.tables.sql import duckdb_connection


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeState:
    """One root and its tables: how many flights they contain, whether each once, and how many dead letters."""

    version: int
    entries: tuple[Entry, ...]
    objects: frozenset[str]
    flights: int = 0
    once: bool = True
    dead: int = 0

    @property
    def committed(self) -> tuple[Entry, ...]:
        """The committed intervals."""
        return tuple(e for e in self.entries if e.committed is not None)

    @property
    def granted(self) -> tuple[Entry, ...]:
        """The intervals with a grant: a plan may still commit them."""
        return tuple(e for e in self.entries if e.granted is not None)

    @property
    def rows(self) -> tuple[int, bool, int]:
        """All counts, to compare them with those of another state."""
        return self.flights, self.once, self.dead

    def entry(self, start: datetime) -> Entry:
        """Return the entry whose interval starts at `start`."""
        return next(e for e in self.entries if e.interval.start == start)

    def data_files(self, part: str) -> frozenset[str]:
        """Return the keys of all data files of one interval, visible or not."""
        return frozenset(k for k in self.objects if _interval_part(k) == part)

    @property
    def reports(self) -> frozenset[str]:
        """Keys of all reports."""
        return frozenset(k for k in self.objects if k.startswith(keys.ATTEMPTS_PREFIX))


def _interval_part(key: str) -> str | None:
    try:
        return keys.data_file_parts(key)[1]
    except ValueError:
        return None  # not a data file


class LakeReader:
    """Reads the demo's lake, directly from the S3 server."""

    def __init__(self, pipeline: DemoPipeline, environ: Mapping[str, str]) -> None:
        self._pipeline = pipeline
        # For the clients in this process and its child processes.
        os.environ.update({n: v for n, v in environ.items() if n.startswith("AWS_")})
        self._environ = dict(environ)
        self._lake = Lake(open_store(pipeline.lake), system_runtime(), proven=True)

    @property
    def endpoint(self) -> str:
        """URL of the S3 server."""
        return self._environ["AWS_ENDPOINT_URL_S3"]

    def read(self) -> LakeState:
        """Read one root, and count the rows of the tables that it names."""
        return self._lake.read(self._state)

    def objects(self) -> frozenset[str]:
        """Return the keys of all objects of the lake, visible or not."""
        return frozenset(found.key for found in self._lake.store.list(""))

    def _state(self, snapshot: Snapshot) -> LakeState:
        objects = self.objects()
        if keys.ROOT not in objects:
            raise SettingsError(
                f"{self._pipeline.lake} has no root.", hint="read the log of the plan task."
            )
        entries = snapshot.whole_ledger().entries
        tables = {
            name: self._lake.where(table.metadata)
            for name, table in snapshot.root.tables.items()
            if table.metadata is not None
        }
        if not tables:
            return LakeState(version=snapshot.root.version, entries=entries, objects=objects)
        with duckdb_connection(tables, environ=self._environ) as db:
            flights, once = db.execute(self._pipeline.summary_sql).fetchall()[0]
            dead = db.execute(DEAD_LETTERS_SQL).fetchall()[0][0]
        return LakeState(
            version=snapshot.root.version,
            entries=entries,
            objects=objects,
            flights=flights,
            once=once,
            dead=dead,
        )
