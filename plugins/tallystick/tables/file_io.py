"""PyIceberg's FileIO over our Store: every request is the store's to make, to count and to fail honestly.

Files are small here (metadata, manifests) and read whole, in one request. Names are fresh, so each file is written
by create-if-absent; nothing is ever deleted, because writers delete nothing (I6).
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from types import TracebackType

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from tallystick.errors import Corrupt
from tallystick.format import keys
from tallystick.runtime import Runtime, system_runtime
from tallystick.store import Store
from tallystick.store.create_once import create_once


class StoreFileIO(FileIO):
    """Reads and creates objects under one lake root; locations are `<store.uri>/<key>`."""

    def __init__(self, store: Store, runtime: Runtime | None = None) -> None:
        super().__init__()
        self._store = store
        self._world = runtime or system_runtime()

    def location(self, key: str) -> str:
        """Return the location of a key."""
        return f"{self._store.uri}/{key}"

    def key(self, location: str) -> str:
        """Return the key of a location; raises Corrupt for one outside the lake root or outside its tables."""
        prefix = f"{self._store.uri}/"
        key = location.removeprefix(prefix)
        if (
            not location.startswith(prefix)
            or not key.startswith(keys.TABLES_PREFIX)
            or ".." in key.split("/")
        ):
            raise Corrupt(
                f"table metadata names {location!r}, which lies outside the tables of {self._store.uri}.",
                hint="Iceberg paths are absolute: read the lake where it was written, not in a copy.",
            )
        return key

    def new_input(self, location: str) -> StoreInput:
        """Return the file at a location, to be read."""
        return StoreInput(location, key=self.key(location), store=self._store)

    def new_output(self, location: str) -> StoreOutput:
        """Return the file at a location, to be created."""
        return StoreOutput(location, key=self.key(location), store=self._store, runtime=self._world)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Refuse: only gc deletes."""
        named = location if isinstance(location, str) else location.location
        raise PermissionError(f"{named} was not deleted: writers delete nothing")


class StoreInput(InputFile):
    """One object, read whole when it is opened."""

    def __init__(self, location: str, *, key: str, store: Store) -> None:
        super().__init__(location)
        self._key = key
        self._store = store

    def _body(self) -> bytes:
        stored = self._store.get(self._key)
        if stored is None:
            raise Corrupt(
                f"{self.location} is gone, and table metadata names it.",
                hint="nothing was changed. Find out who deleted it; restore it from a bucket version.",
            )
        return stored.body

    def __len__(self) -> int:
        """Return the size in bytes."""
        return len(self._body())

    def exists(self) -> bool:
        """Tell whether the object is there."""
        return self._store.get(self._key) is not None

    def open(self, seekable: bool = True) -> InputStream:
        """Read the object; raises Corrupt where it is gone, and what the store raises."""
        del seekable  # a buffer in memory always is
        return BytesIO(self._body())


class StoreOutput(OutputFile):
    """One object under a fresh name, created when its stream is closed."""

    def __init__(self, location: str, *, key: str, store: Store, runtime: Runtime) -> None:
        super().__init__(location)
        self._key = key
        self._store = store
        self._world = runtime
        self._size_bytes = 0

    def __len__(self) -> int:
        """Return the size in bytes of what was written."""
        return self._size_bytes

    def exists(self) -> bool:
        """Tell whether the object is there."""
        return self._store.get(self._key) is not None

    def to_input_file(self) -> StoreInput:
        """Return the same file, to be read."""
        return StoreInput(self.location, key=self._key, store=self._store)

    def create(self, overwrite: bool = False) -> OutputStream:
        """Return a stream that creates the object when it is closed. Nothing is ever overwritten, whatever is asked."""
        del overwrite
        return _CreateOnClose(self._create)

    def _create(self, body: bytes) -> None:
        """Create the object.

        Safe to repeat: the name is fresh, nobody else writes it, so `exists` can only be a copy of these very bytes,
        which is checked. Raises OutcomeUnknown if no try had a known outcome: nothing names the object yet, so it may
        land late and harm nobody.
        """
        self._size_bytes = len(body)
        if not create_once(self._store, self._key, body, runtime=self._world):
            raise Corrupt(
                f"{self.location} should be a fresh name, and holds other bytes.",
                hint="nothing was changed. Run again; if this repeats, names are not drawn at random.",
            )


class _CreateOnClose(BytesIO):
    """Bytes that become an object at the end, unless an error ended them."""

    def __init__(self, create: Callable[[bytes], None]) -> None:
        super().__init__()
        self._create = create

    def close(self) -> None:
        if not self.closed:
            body = self.getvalue()
            super().close()
            self._create(body)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            super().close()

    def __del__(self) -> None:
        # Not BytesIO's own, which would close and so write a half-made file.
        super().close()
