"""Lists the objects of a lake, before the swap of the root that gc marks from."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime
from types import TracebackType
from typing import Self

from tallystick.format import keys
from tallystick.store import Store

Watch = Callable[[str, int, int], None]
EVERY = 1000


class Listing:
    """The keys and sizes of all objects in key order, in a temporary file, because a lake may have millions of objects.

    `records` are the commit records. `young_probes` are the scratch objects of probes that may be in progress (modified
    at or after `probes_since`, by the store's clock). `reports` are the report keys by interval part.
    """

    def __init__(self, store: Store, *, probes_since: datetime, watch: Watch) -> None:
        """Read the whole listing. Raises the errors of the store."""
        self._lines = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed by __exit__
        self.objects = 0
        self.records: list[keys.RecordKey] = []
        self.young_probes: list[str] = []
        self.reports: dict[str, list[str]] = {}
        try:
            for listed in store.list(""):
                self._lines.write(json.dumps([listed.key, listed.size_bytes]) + "\n")
                self._note(listed.key, listed.modified, probes_since)
                self.objects += 1
                if self.objects % EVERY == 0:
                    watch("listing", self.objects, 0)
        except BaseException:
            self._lines.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lines.close()

    def _note(self, key: str, modified: datetime, probes_since: datetime) -> None:
        kind = keys.kind(key)
        if kind == "record":
            self.records.append(keys.RecordKey(key))
        elif kind == "probe" and modified >= probes_since:
            self.young_probes.append(key)
        elif kind == "report":
            self.reports.setdefault(keys.interval_of(key)[0], []).append(key)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Yield (key, size in bytes) of every object, in key order."""
        self._lines.seek(0)
        for line in self._lines:
            key, size_bytes = json.loads(line)
            yield key, size_bytes
