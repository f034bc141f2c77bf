"""Reads a lake for the catalog: its newest version, an older one, and the metadata of a table in a version.

Each answer is found from the current root, so a lake that was replaced or collected in the meantime is never answered
from memory. Kept in memory is only what never changes: commit records and metadata files, by their keys.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from tallystick.catalog.cache import SizedCache
from tallystick.catalog.errors import collected, lost_version, no_such_table, no_such_version
from tallystick.catalog.versions import At, ExactCommit
from tallystick.errors import StoreUnavailable
from tallystick.format import keys
from tallystick.format.canonical import corrupt
from tallystick.format.record import Record
from tallystick.format.root import RootTable
from tallystick.lake import Lake, Snapshot
from tallystick.operations.status.timeline import read_all
from tallystick.runtime import Runtime, system_runtime
from tallystick.store import Store

READERS_MAX = 8
WAIT_S = 2.0
ROOT_FRESH_S = 1.0
LINKS_MAX = 200_000
TABLES_MAX = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeVersion:
    """The tables of a lake at one version: the key of each table's metadata; None if nothing was committed to it.

    `record`: that of the last commit; None if there is none.
    """

    lake: str
    uri: str
    record: keys.RecordKey | None
    tables: Mapping[str, str | None]

    @property
    def version(self) -> int:
        """The version of the last commit; 0 if there is none."""
        return 0 if self.record is None else keys.record_version(self.record)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tables to which something was committed, sorted."""
        return tuple(sorted(name for name, key in self.tables.items() if key is not None))

    def metadata_key(self, table: str) -> str:
        """Return the key of a table's metadata; raises CatalogError if the table has none."""
        found = self.tables.get(table)
        if found is None:
            raise no_such_table(self.lake, table)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainLink:
    """What the catalog remembers of a commit record."""

    version: int
    committed_at: datetime
    parent: keys.RecordKey | None


class ServedLake:
    """A lake with the name that it has as a namespace. Several threads may use it at the same time.

    `answer_s`: the time for one answer, beyond which the walk along the commit records ends; the store must have a
    similar limit for each read. At most READERS_MAX requests read the store at the same time, so that a store that hangs
    does not take every thread of the server.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        *,
        answer_s: float,
        fresh_s: float = ROOT_FRESH_S,
        runtime: Runtime | None = None,
    ) -> None:
        self.name = name
        self.store = store
        self._answer_s = answer_s
        self._fresh_s = fresh_s
        self._runtime = runtime or system_runtime()
        self._slots = threading.BoundedSemaphore(READERS_MAX)
        self._links: dict[str, ChainLink] = {}
        self._versions = SizedCache[LakeVersion](
            size_max=TABLES_MAX, size=lambda version: 1 + len(version.tables)
        )
        self._last: tuple[float, Snapshot] | None = None

    @property
    def uri(self) -> str:
        """The lake URI."""
        return self.store.uri

    def at(self, wanted: At) -> LakeVersion:
        """Return the lake at a version, or at the last commit at or before it.

        Raises NothingPlanned if no run has planned anything yet. Raises CatalogError if the version does not exist yet,
        or has no commit before it. Raises StoreUnavailable, Corrupt, SettingsError, RootVanished and IdentityChanged.
        """
        with self._reading():
            if isinstance(wanted, str):
                root = self._root().root
                return self._version_of(root.record, root.tables)
            if isinstance(wanted, datetime):
                key = self._find(self._root(), lambda link: link.committed_at <= wanted)
            else:
                exact = isinstance(wanted, ExactCommit)
                version = wanted.version if isinstance(wanted, ExactCommit) else wanted
                snapshot = self._root_with(version, exact=exact)
                if version == 0:
                    return self._version_of(None, {})
                key = self._find(snapshot, lambda link: link.version <= version)
                if exact and (key is None or ExactCommit.of(key) != wanted):
                    raise lost_version(self.name, version)
            if key is None:
                raise no_such_version(f"Nothing was committed to {self.name} by {_shown(wanted)}.")
            found = self._versions.get(key)
            if found is None:
                found = self._version_of(key, self._record(key).tables)
            return found

    def metadata(self, of: LakeVersion, table: str) -> bytes:
        """Return the bytes of a table's metadata file. Raises CatalogError if gc has deleted it, or as `at`."""
        key = of.metadata_key(table)
        with self._reading():
            found = self.store.get(key)
            if found is not None:
                return found.body
            # gc never deletes what the root names.
            if key not in _metadata_of(self._root().root.tables):
                raise collected(self.name, of.version, table)
        raise corrupt(f"{self.uri}/{key}", "the root names this metadata, and it does not exist")

    def is_current(self, key: str) -> bool:
        """Return True if the root, read at most `fresh_s` seconds ago, names this metadata: then gc cannot delete it."""
        with self._reading():
            return key in _metadata_of(self._root_seen().root.tables)

    def check_not_collected(self, of: LakeVersion) -> None:
        """Raise CatalogError if gc has deleted metadata of this version."""
        with self._reading():
            current = _metadata_of(self._root_seen().root.tables)
            old = {n: key for n, key in of.tables.items() if key is not None and key not in current}
            found = read_all(old.values(), self.store.get)
        for name, key in sorted(old.items()):
            if found[key] is None:
                raise collected(self.name, of.version, name)

    # ------------------------------------------------------------ roots

    def _root(self) -> Snapshot:
        # A Lake must not be used by two threads at the same time.
        lake = Lake(self.store, self._runtime, proven=True, begun=False)
        began_s = self._runtime.monotonic_s()
        snapshot = lake.load_existing()
        self._last = (began_s, snapshot)
        return snapshot

    def _root_seen(self) -> Snapshot:
        """Return the root as it was at most `fresh_s` seconds ago: a session reads many tables of one version."""
        last = self._last
        if last is not None and self._runtime.monotonic_s() - last[0] < self._fresh_s:
            return last[1]
        return self._root()

    def _root_with(self, version: int, *, exact: bool) -> Snapshot:
        """Return a root that has a version; raises CatalogError if the newest one does not have it."""
        snapshot = self._root_seen()
        if version > snapshot.root.version:
            # Another server of this catalog may have named a version that is newer than the root in memory.
            snapshot = self._root()
        newest = snapshot.root.version
        if version <= newest:
            return snapshot
        if exact:
            raise lost_version(self.name, version)
        raise no_such_version(f"{self.name} has no version {version}; it is at version {newest}.")

    def _version_of(
        self, record: keys.RecordKey | None, tables: Mapping[str, RootTable]
    ) -> LakeVersion:
        return LakeVersion(
            lake=self.name,
            uri=self.uri,
            record=record,
            tables={name: table.metadata for name, table in tables.items()},
        )

    # ------------------------------------------------------------ commits

    def _find(
        self, snapshot: Snapshot, wanted: Callable[[ChainLink], bool]
    ) -> keys.RecordKey | None:
        """Return the newest commit of the root's chain that is wanted, or None.

        A record is read once. If a long chain takes longer than an answer may, StoreUnavailable asks the client to send
        the request again, which continues where this one ended.
        """
        ends_s = self._runtime.monotonic_s() + self._answer_s
        key, read = snapshot.root.record, 0
        while key is not None:
            link = self._links.get(key)
            if link is None:
                if self._runtime.monotonic_s() >= ends_s:
                    raise StoreUnavailable(
                        f"{self.uri}: expected to find the version within {self._answer_s:g} s, found {read} commits "
                        "that are newer.",
                        hint="send the request again: it continues from there.",
                    )
                link, read = self._link(key), read + 1
            if wanted(link):
                return key
            key = link.parent
        return None

    def _link(self, key: keys.RecordKey) -> ChainLink:
        record = self._record(key)
        self._versions.put(key, self._version_of(key, record.tables))
        link = ChainLink(
            version=record.version, committed_at=record.committed_at, parent=record.parent
        )
        if len(self._links) >= LINKS_MAX:
            self._links.clear()
        self._links[key] = link
        return link

    def _record(self, key: keys.RecordKey) -> Record:
        lake = Lake(self.store, self._runtime, proven=True)
        record = lake.record(key)
        if record is None:
            raise corrupt(
                lake.where(key), "the chain of commits names this record, and it does not exist"
            )
        return record

    @contextmanager
    def _reading(self) -> Iterator[None]:
        if not self._slots.acquire(timeout=min(WAIT_S, self._answer_s)):
            raise StoreUnavailable(
                f"{self.uri}: {READERS_MAX} requests are waiting for the store already.",
                hint="send the request again later.",
            )
        try:
            yield
        finally:
            self._slots.release()


def _metadata_of(tables: Mapping[str, RootTable]) -> frozenset[str]:
    return frozenset(t.metadata for t in tables.values() if t.metadata is not None)


def _shown(at: At) -> str:
    return keys.instant(at) if isinstance(at, datetime) else f"version {at}"
