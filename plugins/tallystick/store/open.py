"""Opens the store of a lake URI."""

from __future__ import annotations

import os
import threading

from tallystick.errors import InvalidPipeline
from tallystick.store import Store
from tallystick.store.address import check_no_key, parse_memory_uri
from tallystick.store.memory import MemoryStore

_memory_stores: dict[str, MemoryStore] = {}
_memory_lock = threading.Lock()


def open_store(uri: str, *, reads_within_s: float | None = None, writes_too: bool = True) -> Store:
    """Open `s3://bucket/prefix` with boto3's own settings and TALLYSTICK_S3_*, or `memory://name`, shared by name.

    `reads_within_s`: the seconds that a read may wait, over all its tries; None means the default, some minutes, which
    suits a task. `writes_too`: if it also shortens the wait for one try of a write, and for a delete. No request is made.
    Raises InvalidPipeline if the URI is not allowed, SettingsError if boto3 cannot use the settings.
    """
    check_no_key(uri)
    if uri.startswith("memory://"):
        name = parse_memory_uri(uri)
        with _memory_lock:
            return _memory_stores.setdefault(name, MemoryStore(name))
    if uri.startswith("s3://"):
        # The import of boto3 takes a quarter of a second, so it happens only if S3 is used.
        from tallystick.store.s3 import S3Settings, S3Store

        settings = S3Settings.from_environ(os.environ)
        if reads_within_s is None:
            return S3Store(uri, settings=settings)
        limited = settings.answering_within(reads_within_s)
        return S3Store(uri, settings=limited if writes_too else settings, reading=limited)
    raise InvalidPipeline(
        f"lake URI {uri!r} is not allowed: it begins with neither s3:// nor memory://.",
        hint="write `warehouse` as s3://bucket/prefix; for another S3 server set AWS_ENDPOINT_URL_S3 as well.",
    )
