"""PyIceberg's FileIO on tallystick's Store, which makes and counts all requests and raises their errors.

The files are small (metadata, manifests) and read whole, in one request. Names are fresh, so each file is written with
create-if-absent. Nothing is deleted, because writers delete nothing (I6).
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
    """A FileIO that reads and creates objects below one lake URI. Locations are `<store.uri>/<key>`."""

    def __init__(self, store: Store, runtime: Runtime | None = None) -> None:
        super().__init__()
        self._store = store
        self._world = runtime or system_runtime()

    def location(self, key: str) -> str:
        """Return the location of a key."""
        return f"{self._store.uri}/{key}"

    def key(self, location: str) -> str:
        """Return the key of a location. Raises Corrupt if it is outside the lake URI or outside its tables."""
        prefix = f"{self._store.uri}/"
        key = location.removeprefix(prefix)
        if (
            not location.startswith(prefix)
            or not key.startswith(keys.TABLES_PREFIX)
            or ".." in key.split("/")
        ):
            raise Corrupt(
                f"table metadata: expected a location inside the tables of {self._store.uri}, found {location!r}.",
                hint="read the lake at its original location, not in a copy: Iceberg paths are absolute.",
            )
        return key

    def new_input(self, location: str) -> StoreInput:
        """Return the file at a location, for reading."""
        return StoreInput(location, key=self.key(location), store=self._store)

    def new_output(self, location: str) -> StoreOutput:
        """Return the file at a location, for writing."""
        return StoreOutput(location, key=self.key(location), store=self._store, runtime=self._world)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Raise PermissionError: only gc deletes."""
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
                f"table metadata names {self.location}, which does not exist.",
                hint="find out who deleted it, and restore it from a bucket version. Nothing was changed.",
            )
        return stored.body

    def __len__(self) -> int:
        """Return the size in bytes."""
        return len(self._body())

    def exists(self) -> bool:
        """Return True if the object exists."""
        return self._store.get(self._key) is not None

    def open(self, seekable: bool = True) -> InputStream:
        """Read the object. Raises Corrupt if it is gone, and the errors of the store."""
        del seekable  # a buffer in memory is always seekable
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
        """Return the number of bytes written."""
        return self._size_bytes

    def exists(self) -> bool:
        """Return True if the object exists."""
        return self._store.get(self._key) is not None

    def to_input_file(self) -> StoreInput:
        """Return the same file, for reading."""
        return StoreInput(self.location, key=self._key, store=self._store)

    def create(self, overwrite: bool = False) -> OutputStream:
        """Return a stream that creates the object when it is closed. Never overwrites, regardless of `overwrite`."""
        del overwrite
        return _CreateOnClose(self._create)

    def _create(self, body: bytes) -> None:
        """Create the object.

        Safe to repeat: the name is fresh and no other process writes it, so an existing object can only have the same
        bytes, which is checked. Raises Corrupt if it has other bytes, and OutcomeUnknown if no try had a known outcome;
        then a late write does no harm, because nothing names the object yet.
        """
        self._size_bytes = len(body)
        if not create_once(self._store, self._key, body, runtime=self._world):
            raise Corrupt(
                f"{self.location}: expected a new object, found one with other bytes.",
                hint="run the task again; if it repeats, check this machine's source of randomness. Nothing "
                "was changed.",
            )


class _CreateOnClose(BytesIO):
    """A buffer that becomes an object when it is closed, but not after an error."""

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
        # BytesIO's own __del__ would call close(), which would write an incomplete file.
        super().close()
