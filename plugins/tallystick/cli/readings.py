"""Reads the measurements of lakes again and again, for `tally metrics`; a lake that cannot be read hides no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, wait
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime

from tallystick.cli.errors import note
from tallystick.cli.lag import ends_within_limit
from tallystick.cli.lake_argument import open_lake
from tallystick.errors import StoreUnavailable, TallystickError
from tallystick.operations.lag import Lag, read_lag
from tallystick.operations.metrics import Measurement, measurements, readable
from tallystick.operations.status import Status, StatusCache, read_status

# Prometheus waits 10 seconds by default.
SCRAPE_WAIT_S = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeReading:
    """The measurements of one lake at one time. `error`: why the lake could not be read, or None."""

    uri: str
    at: datetime
    measurements: tuple[Measurement, ...]
    pipeline: str | None = None
    version: int | None = None
    error: TallystickError | None = None


class ErrorNotes:
    """Writes errors of repeated readings to standard error: each only if the reading before had another one or none."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._last: str | None = None

    def note(self, error: TallystickError | None) -> None:
        """Write the error, unless it is the last one again; None: there is none any more."""
        message = None if error is None else f"{self._what} ({error.kind}): {error.message}"
        if message is not None and message != self._last:
            note(message)
        self._last = message


class MeasuredLake:
    """An open lake that is read repeatedly: from the second time on, only new pages of its ledger are read."""

    def __init__(self, uri: str | None, *, kafka: str | None, no_kafka: bool) -> None:
        self._lake = open_lake(uri)
        self._cache = StatusCache()
        self._kafka, self._no_kafka = kafka, no_kafka
        self._lag_notes = ErrorNotes(f"Lag of {self.uri} unknown")
        self._notes = ErrorNotes(f"Lake {self.uri} cannot be read")

    @property
    def uri(self) -> str:
        """The URI of the lake."""
        return self._lake.store.uri

    def read(self) -> LakeReading:
        """Return the measurements. If the lake cannot be read, the reading contains the error instead of raising it.

        Only one thread at a time may call it.
        """
        try:
            status = read_status(self._lake, cache=self._cache)
            lag = self._lag(status)
        except TallystickError as error:
            return self.unread(error)
        now = self._lake.runtime.now()
        return LakeReading(
            uri=self.uri,
            at=now,
            measurements=measurements(status, lag, now=now),
            pipeline=status.pipeline,
            version=status.version,
        )

    def read_and_note(self) -> LakeReading:
        """Return the measurements, and write an error to standard error: for commands that do not end with it."""
        reading = self.read()
        self._notes.note(reading.error)
        return reading

    def unread(self, error: TallystickError) -> LakeReading:
        """Return the reading of a lake that could not be read."""
        unread = (readable(self.uri, is_readable=False),)
        return LakeReading(
            uri=self.uri, at=self._lake.runtime.now(), measurements=unread, error=error
        )

    def _lag(self, status: Status) -> Lag | None:
        if self._no_kafka or not status.read_to:
            return None
        lag = read_lag(self._lake, status, connection=self._kafka, read_ends=ends_within_limit)
        self._lag_notes.note(lag.error)
        return lag


class CachedReadings:
    """The latest readings of lakes. A lake is read again if its last reading ended `every_s` ago or more.

    Each lake is read in a thread of its own, so that one that does not answer delays the others by at most `wait_s`.
    """

    def __init__(
        self, lakes: Sequence[MeasuredLake], *, every_s: float, wait_s: float = SCRAPE_WAIT_S
    ) -> None:
        self._lakes = lakes
        self._every_s, self._wait_s = every_s, wait_s
        self._lock = threading.Lock()
        self._latest: dict[str, Future[LakeReading]] = {}
        self._ended_s: dict[str, float] = {}

    def current(self) -> list[LakeReading]:
        """Return the latest readings. A lake that does not answer within `wait_s` counts as one that cannot be read."""
        with self._lock:
            latest = {lake.uri: self._started(lake) for lake in self._lakes}
        wait(latest.values(), timeout=self._wait_s)
        return [
            latest[lake.uri].result() if latest[lake.uri].done() else self._late(lake)
            for lake in self._lakes
        ]

    def _started(self, lake: MeasuredLake) -> Future[LakeReading]:
        """Return the reading of a lake that is recent or in progress; if there is none, start one."""
        latest = self._latest.get(lake.uri)
        if latest is not None and not (latest.done() and self._is_old(lake.uri)):
            return latest
        begun: Future[LakeReading] = Future()
        self._latest[lake.uri] = begun

        def read() -> None:
            try:
                reading = lake.read_and_note()
            except Exception as error:  # noqa: BLE001 - a defect: raised again where the reading is used
                self._ended_s[lake.uri] = time.monotonic()
                begun.set_exception(error)
            else:
                self._ended_s[lake.uri] = time.monotonic()
                begun.set_result(reading)

        # The context has the time limit of the command. A daemon thread does not delay the end of the process.
        threading.Thread(target=copy_context().run, args=(read,), daemon=True).start()
        return begun

    def _is_old(self, uri: str) -> bool:
        # The time of the end is set before the reading is.
        return time.monotonic() - self._ended_s[uri] >= self._every_s

    def _late(self, lake: MeasuredLake) -> LakeReading:
        return lake.unread(
            StoreUnavailable(
                f"{lake.uri}: expected an answer within {self._wait_s:g} s, found none.",
                hint="look at the next scrape: the reading continues.",
            )
        )
