"""Uploads finished local files under an attempt's prefix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tallystick.format import keys
from tallystick.runtime import Runtime
from tallystick.store import Store
from tallystick.store.create_once import create_fresh


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPrefix:
    """The prefix under which one task of one attempt uploads its files."""

    store: Store
    runtime: Runtime
    plan: keys.PlanKey
    attempt: str
    task: str

    def upload(self, table: str, path: Path) -> tuple[str, str]:
        """Upload one file of `table`; return its key and ETag. Raises StoreUnavailable, see `_upload`."""
        return self._upload(
            path,
            lambda uuid: keys.data_file(table, self.plan, self.attempt, self.task, uuid),
            keys.attempt_prefix(table, self.plan, self.attempt),
        )

    def upload_scratch(self, path: Path) -> tuple[str, str]:
        """Upload one file of the attempt's scratch; return its key and ETag. Raises StoreUnavailable, see `_upload`."""
        return self._upload(
            path,
            lambda uuid: keys.scratch_file(self.plan, self.attempt, self.task, uuid),
            keys.scratch_prefix(self.plan, self.attempt),
        )

    def _upload(self, path: Path, key_of: Callable[[str], str], prefix: str) -> tuple[str, str]:
        """Upload one file under its own key.

        Safe to repeat: every try has a key with a fresh uuid, and nothing reads the prefix before a report names the
        key (C4). Raises StoreUnavailable if no try is known to have succeeded.
        """
        what = f"uploading to {self.store.uri} under {prefix}"
        return create_fresh(self.store, key_of, path, runtime=self.runtime, what=what)


Upload = Callable[[str, Path], tuple[str, str]]
