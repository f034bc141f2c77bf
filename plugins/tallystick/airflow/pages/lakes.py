"""Keeps lakes open in the API server, with what was read of them, so that a page costs few requests.

Settings are those of the API server's own environment, as for tasks: boto3's, TALLYSTICK_S3_*, and Kafka's connections. A
role that may only read is enough.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tallystick.airflow.connections import settings_named
from tallystick.connections.kafka import KafkaSettings
from tallystick.kafka.wire import TopicEnds
from tallystick.lake import Lake
from tallystick.operations.status import Status, StatusCache, read_status
from tallystick.runtime import system_runtime
from tallystick.store import Store
from tallystick.store.open import open_store

LAKES_MAX = 64
_ANSWER_MS = 5_000


@dataclass(slots=True, kw_only=True)
class OpenLake:
    """The store of one lake, what was read of its ledger, and the last answer about its status.

    `lock`: one request at a time reads the ledger, because the others then find it in the cache.
    """

    store: Store
    cache: StatusCache = field(default_factory=StatusCache)
    lock: threading.Lock = field(default_factory=threading.Lock)
    answer: tuple[str, bytes] | None = None

    def lake(self) -> Lake:
        """Return the lake, for one request: a Lake must not be used by two threads at the same time."""
        return Lake(self.store, system_runtime(), proven=True, begun=False)

    def status(self) -> Status:
        """Return the lake's status under its current root."""
        with self.lock:
            return read_status(self.lake(), cache=self.cache)


class OpenLakes:
    """The open lakes by URI, at most LAKES_MAX: the one that was not used for the longest time is closed."""

    def __init__(self) -> None:
        self._lakes: OrderedDict[str, OpenLake] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, uri: str) -> OpenLake:
        """Return the open lake of a URI; raises InvalidPipeline and SettingsError."""
        with self._lock:
            if uri not in self._lakes:
                self._lakes[uri] = OpenLake(store=open_store(uri))
            self._lakes.move_to_end(uri)
            while len(self._lakes) > LAKES_MAX:
                self._lakes.popitem(last=False)
            return self._lakes[uri]


OPEN_LAKES = OpenLakes()


def read_ends(connection: str, offsets: Mapping[str, Sequence[int]]) -> Mapping[str, TopicEnds]:
    """Read the ends of topics with a connection as tasks resolve it; raises SettingsError, and what the client does."""
    from tallystick.kafka.log_ends import read_topic_ends

    settings = settings_named(KafkaSettings, connection)
    quick = replace(
        settings,
        request_timeout_ms=min(settings.request_timeout_ms, _ANSWER_MS),
        bootstrap_timeout_ms=min(settings.bootstrap_timeout_ms, _ANSWER_MS),
    )
    return read_topic_ends(quick, offsets)
