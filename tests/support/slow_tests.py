"""Shows which tests run while no test ends: the last lines of a run that was stopped from outside name its tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

SILENT_S = 300.0


class SlowTests:
    """A pytest plugin for the main process: prints the running tests whenever none has ended for `silent_s` seconds."""

    def __init__(self, write: Callable[[str], None], silent_s: float = SILENT_S) -> None:
        self._write = write
        self._silent_s = silent_s
        self._running: dict[str, float] = {}
        self._step = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="slow tests", daemon=True)

    def pytest_sessionstart(self) -> None:
        """Start to watch."""
        self._thread.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note that a test runs, in this process or in a worker of pytest-xdist."""
        self._running[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Note that a test has ended."""
        self._running.pop(nodeid, None)
        self._step.set()

    def pytest_handlecrashitem(self, crashitem: str) -> None:
        """Note that the worker of a test has crashed: no end of the test is reported."""
        self.pytest_runtest_logfinish(crashitem)

    def pytest_sessionfinish(self) -> None:
        """Stop watching."""
        self._ended.set()
        self._step.set()
        self._thread.join()

    def lines(self) -> str:
        """Return one line per running test, with the seconds since its start."""
        now = time.monotonic()
        return "".join(
            f"\nstill running after {now - since:,.0f} s: {nodeid}"
            for nodeid, since in sorted(self._running.items(), key=lambda item: item[1])
        )

    def _watch(self) -> None:
        while not self._ended.is_set():
            if not self._step.wait(self._silent_s) and self._running:
                self._write(self.lines() + "\n")
            # After the wait, not before it: a step that ends the session in between must not be lost.
            self._step.clear()
