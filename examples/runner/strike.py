"""Kills the publishing task between `in_progress` and `published`, by a gate that all its requests to S3 go through.

The gate knows the task's process by the ledger page that says `in_progress`. Once the root that names this page has
landed, the task goes on in short steps, and stands still while somebody looks outside whether rows of it are out
already. At the first it is killed: in the middle. One that is quicker dies when it asks to note `published`: all is out
then, and nobody knows. So a strike never misses a task that publishes something.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import psutil

from examples.demo.gate import Gate, Handler, holder_of

STEP_S = 0.005
_BEGUN = re.compile(rb'"in_progress":"[0-9a-f]{32}"')
_PAGE = re.compile(r"/ledger/[^/]+\.json$")
_ROOT = re.compile(r"/root\.json$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """What was killed, how many rows (messages, files, calls) were out by then; `noting`: it asked to note the end."""

    pid: int
    command: str
    out: int
    noting: bool

    def __str__(self) -> str:
        if self.noting:
            return f"kill -9 with all {self.out} out, before that was noted"
        return f"kill -9 with {self.out} out"


class Strike(Gate):
    """A gate that kills one publisher. `out` says how many rows of what is to be published are there already."""

    def __init__(self, upstream_url: str, *, out: Callable[[], int]) -> None:
        super().__init__(upstream_url)
        self._out = out
        self._told = threading.Lock()
        self._begins: set[int] = set()
        self._victim: psutil.Process | None = None
        self._blow: Blow | None = None
        self._stepping: threading.Thread | None = None

    @property
    def blow(self) -> Blow | None:
        """What was killed, None as long as nothing was."""
        with self._told:
            return self._blow

    def handle(self, handler: Handler, method: str, path: str, body: bytes) -> None:
        """Pass one request on; that of the victim which would note the end is its last."""
        if method == "PUT" and self._victim is None and _PAGE.search(path) and _BEGUN.search(body):
            self._begins.add(holder_of(handler.client_address).pid)
        elif method == "PUT" and self._begins and _ROOT.search(path):
            sender = _living(handler.client_address)
            if self._victim is None and sender is not None and sender.pid in self._begins:
                self._begin(handler, method, path, body, sender)
                return
            if sender is None or (self._victim is not None and sender.pid == self._victim.pid):
                # A dead sender is the victim, too: it was killed while this very request was on its way.
                self._strike(noting=True)
                handler.close_connection = True
                return
        super().handle(handler, method, path, body)

    def _begin(
        self, handler: Handler, method: str, path: str, body: bytes, sender: psutil.Process
    ) -> None:
        """Pass on the swap that says `in_progress`; where it has landed, the task goes on in steps only."""
        status, headers, answer = self.forward(method, path, body, dict(handler.headers.items()))
        if status == 200:
            sender.suspend()
            self._victim = sender
            self._stepping = threading.Thread(target=self._step, daemon=True)
            self._stepping.start()
        handler.answer(status, headers, answer)

    def _step(self) -> None:
        """Let the victim go on a little, again and again, until some of its rows are out."""
        victim = self._victim
        assert victim is not None
        pause = threading.Event()
        try:
            while self.blow is None:
                if self._out():
                    self._strike(noting=False)
                    return
                victim.resume()
                pause.wait(STEP_S)
                victim.suspend()
        except psutil.NoSuchProcess:
            return  # it was killed by the request that would have noted the end
        finally:
            if self.blow is None:
                with suppress(psutil.NoSuchProcess):
                    victim.resume()  # nobody else would

    def _strike(self, *, noting: bool) -> None:
        with self._told:
            victim = self._victim
            if self._blow is not None or victim is None:
                return
            # Standing still, nothing of it can be under way that the look does not see.
            victim.suspend()
            command, out = " ".join(victim.cmdline()), self._out()
            victim.kill()
            self._blow = Blow(pid=victim.pid, command=command, out=out, noting=noting)


def _living(client: tuple[str, int]) -> psutil.Process | None:
    """The process at the other end of a connection; None where it is gone."""
    try:
        return holder_of(client)
    except (RuntimeError, psutil.NoSuchProcess):
        return None
