"""What a reader of the lake sees at one moment: one root, and how many rows its tables hold."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from examples.demo.example import DEAD, Example
from tallystick.errors import SettingsError
from tallystick.format import keys
from tallystick.format.page import Entry
from tallystick.lake import Lake, Snapshot
from tallystick.runtime import system_runtime
from tallystick.store.open import open_store
from tallystick.tables.sql import duckdb_connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One root and its tables: how many flights they tell of, whether each once, and how many dead letters there are."""

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
        """The intervals that somebody may commit next."""
        return tuple(e for e in self.entries if e.granted is not None)

    @property
    def rows(self) -> tuple[int, bool, int]:
        """All that was counted, to be compared with another sight's."""
        return self.flights, self.once, self.dead

    def entry(self, start: datetime) -> Entry:
        """The entry that begins at an instant."""
        return next(e for e in self.entries if e.interval.start == start)

    def data_files(self, part: str) -> frozenset[str]:
        """Keys of all data files of one interval, visible or not."""
        return frozenset(k for k in self.objects if _interval_part(k) == part)

    @property
    def reports(self) -> frozenset[str]:
        """Keys of all reports."""
        return frozenset(k for k in self.objects if k.startswith(keys.ATTEMPTS_PREFIX))


def _interval_part(key: str) -> str | None:
    try:
        return keys.data_file_parts(key)[1]
    except ValueError:
        return None  # no data file


class Watcher:
    """Looks at the demo's lake, directly at the S3 server."""

    def __init__(self, example: Example, environ: Mapping[str, str]) -> None:
        self._example = example
        # Our own clients, and whoever this process starts, see the stack's server.
        os.environ.update({n: v for n, v in environ.items() if n.startswith("AWS_")})
        self._environ = dict(environ)
        self._lake = Lake(open_store(example.lake), system_runtime(), proven=True)

    @property
    def endpoint(self) -> str:
        """URL of the S3 server."""
        return self._environ["AWS_ENDPOINT_URL_S3"]

    def look(self) -> Sight:
        """Read one root, and count in the tables that it names."""
        return self._lake.read(self._see)

    def objects(self) -> frozenset[str]:
        """Keys of all objects of the lake, visible or not."""
        return frozenset(found.key for found in self._lake.store.list(""))

    def _see(self, snapshot: Snapshot) -> Sight:
        objects = self.objects()
        if keys.ROOT not in objects:
            raise SettingsError(
                f"{self._example.lake} has no root.", hint="look into the plan task's log."
            )
        entries = snapshot.whole_ledger().entries
        tables = {
            name: self._lake.where(table.metadata)
            for name, table in snapshot.root.tables.items()
            if table.metadata is not None
        }
        if not tables:
            return Sight(version=snapshot.root.version, entries=entries, objects=objects)
        with duckdb_connection(tables, environ=self._environ) as db:
            flights, once = db.execute(self._example.glance).fetchall()[0]
            dead = db.execute(DEAD).fetchall()[0][0]
        return Sight(
            version=snapshot.root.version,
            entries=entries,
            objects=objects,
            flights=flights,
            once=once,
            dead=dead,
        )
