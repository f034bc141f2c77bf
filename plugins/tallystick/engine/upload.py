"""Puts finished local files under an attempt's prefix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tallystick.errors import StoreUnavailable
from tallystick.format import keys
from tallystick.runtime import World
from tallystick.store import Applied, Store, Unknown

TRIES_MAX = 6
PAUSE_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPrefix:
    """Where one task of one attempt puts its files."""

    store: Store
    world: World
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
        """Upload one file under a key of its own.

        Safe to repeat: every try has a key with a fresh uuid, and nobody reads the prefix before a report names the
        key. A try whose outcome is unknown is left behind: gc collects what no report names (C4). Raises
        StoreUnavailable when no try was seen to land.
        """
        why = ""
        for tries in range(TRIES_MAX):
            key = key_of(self.world.uuid())
            outcome = self.store.create(key, path)
            if isinstance(outcome, Applied):
                return key, outcome.etag
            why = outcome.because
            if isinstance(outcome, Unknown):
                self.world.sleep(PAUSE_S * 2**tries * self.world.chance())
        raise StoreUnavailable(
            f"uploading to {self.store.uri} under {prefix} did not succeed in {TRIES_MAX} tries ({why}).",
            next_step="check that the store answers (AWS_ENDPOINT_URL_S3, network, credentials); then retry.",
        )


Upload = Callable[[str, Path], tuple[str, str]]
