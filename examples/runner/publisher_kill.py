"""Kills the publishing task between `in_progress` and `published`, by a proxy that all its requests to S3 go through.

The proxy identifies the task's process by the ledger page that contains `in_progress`. After the root that names this
page is applied, the task runs in short steps. Between two steps it is suspended, while `count_published` checks outside
whether any of its rows are published. As soon as one is, the task is killed, in the middle. A faster task is killed when
it requests to record `published`: all rows are published then, and the ledger does not have that yet. So every task that
publishes something is killed.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import psutil

from examples.demo.kill_proxy import Handler, KillProxy, peer_process

STEP_S = 0.005
_IN_PROGRESS = re.compile(rb'"in_progress":"[0-9a-f]{32}"')
_PAGE = re.compile(r"/ledger/[^/]+\.json$")
_ROOT = re.compile(r"/root\.json$")


@dataclass(frozen=True, slots=True, kw_only=True)
class KillResult:
    """The process that was killed, and the number of rows (messages, files, calls) that it had published.

    `at_end`: it had requested to record `published`.
    """

    pid: int
    command: str
    published: int
    at_end: bool

    def __str__(self) -> str:
        if self.at_end:
            return f"kill -9 with all {self.published} published, before that was recorded"
        return f"kill -9 with {self.published} published"


class PublisherKillProxy(KillProxy):
    """A proxy that kills one publisher. `count_published` returns how many of its rows are published already."""

    def __init__(self, upstream_url: str, *, count_published: Callable[[], int]) -> None:
        super().__init__(upstream_url)
        self._count_published = count_published
        self._result_lock = threading.Lock()
        self._publishers: set[int] = set()
        self._victim: psutil.Process | None = None
        self._result: KillResult | None = None
        self._stepping: threading.Thread | None = None

    @property
    def result(self) -> KillResult | None:
        """The kill; None until there is one."""
        with self._result_lock:
            return self._result

    def handle(self, handler: Handler, method: str, path: str, body: bytes) -> None:
        """Forward one request; drop the request of the victim that would record the end, and kill it."""
        is_page = method == "PUT" and _PAGE.search(path)
        if is_page and self._victim is None and _IN_PROGRESS.search(body):
            self._publishers.add(peer_process(handler.connection).pid)
        elif method == "PUT" and self._publishers and _ROOT.search(path):
            sender = _living_peer(handler.connection)
            if self._victim is None and sender is not None and sender.pid in self._publishers:
                self._begin(handler, method, path, body, sender)
                return
            if sender is None or (self._victim is not None and sender.pid == self._victim.pid):
                # A dead sender is also the victim: it was killed while this request was on its way.
                self._kill_victim(at_end=True)
                handler.close_connection = True
                return
        super().handle(handler, method, path, body)

    def _begin(
        self, handler: Handler, method: str, path: str, body: bytes, sender: psutil.Process
    ) -> None:
        """Forward the swap with `in_progress`; if it is applied, the task runs only in steps from now on."""
        status, headers, answer = self.forward(method, path, body, dict(handler.headers.items()))
        if status == 200:
            sender.suspend()
            self._victim = sender
            self._stepping = threading.Thread(target=self._step, daemon=True)
            self._stepping.start()
        handler.answer(status, headers, answer)

    def _step(self) -> None:
        """Let the victim run for short times until some of its rows are published."""
        victim = self._victim
        assert victim is not None
        pause = threading.Event()
        try:
            while self.result is None:
                if self._count_published():
                    self._kill_victim(at_end=False)
                    return
                victim.resume()
                pause.wait(STEP_S)
                victim.suspend()
        except psutil.NoSuchProcess:
            return  # it was killed by the request that would have recorded the end
        finally:
            if self.result is None:
                with suppress(psutil.NoSuchProcess):
                    victim.resume()  # nothing else resumes it

    def _kill_victim(self, *, at_end: bool) -> None:
        with self._result_lock:
            victim = self._victim
            if self._result is not None or victim is None:
                return
            # While it is suspended, none of its rows can be published after the count.
            victim.suspend()
            command, published = " ".join(victim.cmdline()), self._count_published()
            victim.kill()
            self._result = KillResult(
                pid=victim.pid, command=command, published=published, at_end=at_end
            )


def _living_peer(connection: socket.socket) -> psutil.Process | None:
    """Return the process at the other end of a connection; None if it is gone."""
    try:
        return peer_process(connection)
    except (RuntimeError, OSError, psutil.NoSuchProcess):
        return None
