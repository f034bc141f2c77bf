"""A store in a folder, for processes that die: an object exists whole or not at all, and is created once."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from tallystick.store import Applied, ETag, Listed, NotApplied, Outcome, Stored

Step = Callable[[str, str], None]


class FolderStore:
    """The part of a store that outputs use; `step` is called before and after each object is created."""

    def __init__(self, folder: Path, *, step: Step = lambda what, key: None) -> None:
        self.folder, self.step = folder, step
        self.uri = "memory://small"

    def get(self, key: str) -> Stored | None:
        """Return one object."""
        try:
            return Stored(body=(self.folder / key).read_bytes(), etag=ETag("any"))
        except FileNotFoundError:
            return None

    def create(self, key: str, body: bytes | Path) -> Outcome:
        """Create one object. Safe to repeat: link(2) fails if the name exists."""
        self.step("before the note", key)
        assert isinstance(body, bytes)
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / f"{uuid.uuid4().hex}.writing"
        temporary.write_bytes(body)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return NotApplied(because="exists")
        finally:
            temporary.unlink()
        self.step("after the note", key)
        return Applied(etag=ETag("any"))

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yield every object below a prefix."""
        for path in sorted(self.folder.rglob("*.json")):
            key = path.relative_to(self.folder).as_posix()
            if key.startswith(prefix):
                yield Listed(key=key, size_bytes=1, etag=ETag("any"), modified=datetime.now(UTC))

    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        """Raise NotImplementedError: notes are never replaced."""
        raise NotImplementedError

    def delete(self, keys: object) -> None:
        """Raise NotImplementedError: writers delete nothing."""
        raise NotImplementedError
