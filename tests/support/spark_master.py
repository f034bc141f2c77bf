"""A simulated Spark master: the REST API of a standalone one, whose drivers are processes without a JVM.

The answers are those of Spark 4.2, recorded from a real master (tests/spark/test_standalone_drivers.py compares them).
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

from tallystick_devstack.testing.servers import free_port

VERSION = "4.2.0"


@dataclass
class SimulatedDriver:
    """One driver: the request that started it, its state, and its process while it runs."""

    request: Mapping[str, Any]
    state: str = "SUBMITTED"
    process: subprocess.Popen[bytes] | None = None

    @property
    def arguments(self) -> list[str]:
        """The arguments of the job, without those of spark-submit."""
        words = list(self.request["appArgs"])
        return words[words.index(self.request["appResource"]) + 1 :]


@dataclass
class SimulatedMaster:
    """The master. `command`: what a driver runs, with the job's arguments after it. `cores`: how many run at once.

    `faults`: answers to the next requests, as (status, body); None closes the connection without an answer.
    """

    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    cores: int = 2
    drivers: dict[str, SimulatedDriver] = field(default_factory=dict)
    faults: list[tuple[int, bytes] | None] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    headers: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.port = free_port()
        self._numbers = count()
        self._lock = threading.Lock()
        self._free = threading.Semaphore(self.cores)

    @property
    def url(self) -> str:
        """The address of the REST API."""
        return f"http://127.0.0.1:{self.port}"

    def states(self) -> dict[str, int]:
        """Return the number of drivers in each state."""
        with self._lock:
            found: dict[str, int] = {}
            for driver in self.drivers.values():
                found[driver.state] = found.get(driver.state, 0) + 1
            return found

    def add_cores(self, cores: int) -> None:
        """Let that many more drivers run at once."""
        for _ in range(cores):
            self._free.release()

    def forget(self) -> None:
        """Forget every driver, as a master does that is started again without recovery; processes go on."""
        with self._lock:
            self.drivers = {}

    def answer(self, method: str, path: str, body: Any) -> dict[str, Any]:
        """Return the answer to a request."""
        verb, _, driver = path.removeprefix("/v1/submissions/").partition("/")
        if (method, verb) == ("POST", "create"):
            return self._create(body)
        found = self.drivers.get(driver)
        if (method, verb) == ("GET", "status"):
            if found is None:
                return self._form("SubmissionStatusResponse", driver, success=False)
            return self._form(
                "SubmissionStatusResponse", driver, driverState=found.state, success=True
            )
        assert (method, verb) == ("POST", "kill"), (method, path)
        killed = found is not None and self._kill(found)
        what = (
            "Kill request for {} submitted"
            if killed
            else "Driver {} has already finished or does not exist"
        )
        return self._form(
            "KillSubmissionResponse", driver, message=what.format(driver), success=killed
        )

    def _create(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            name = f"driver-20261126000000-{next(self._numbers):04d}"
            driver = self.drivers[name] = SimulatedDriver(request)
        threading.Thread(target=self._run, args=(driver,), daemon=True).start()
        message = f"Driver successfully submitted as {name}"
        return self._form("CreateSubmissionResponse", name, message=message, success=True)

    def _run(self, driver: SimulatedDriver) -> None:
        with self._free:
            with self._lock:
                if driver.state != "SUBMITTED":
                    return
                driver.process = subprocess.Popen(
                    [*self.command, *driver.arguments],
                    env={**self.env, **driver.request["environmentVariables"]},
                    stdin=subprocess.DEVNULL,
                )
                # Last: states are read without the lock, and a running driver has a process.
                driver.state = "RUNNING"
            code = driver.process.wait()
            with self._lock:
                if driver.state == "RUNNING":
                    driver.state = "FINISHED" if code == 0 else "FAILED"

    def _kill(self, driver: SimulatedDriver) -> bool:
        with self._lock:
            if driver.state not in ("SUBMITTED", "RUNNING"):
                return False
            driver.state = "KILLED"
            if driver.process is not None:
                driver.process.kill()
            return True

    def _form(self, action: str, driver: str, **fields: Any) -> dict[str, Any]:
        return {"action": action, "serverSparkVersion": VERSION, "submissionId": driver, **fields}


@contextmanager
def simulated_master(master: SimulatedMaster) -> Iterator[SimulatedMaster]:
    """Serve the API on the loopback interface. At the end all drivers are killed."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("GET", None)

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            self._answer("POST", json.loads(self.rfile.read(length) or b"null"))

        def _answer(self, method: str, body: Any) -> None:
            master.requests.append(f"{method} {self.path}")
            master.headers.append(self.headers.get("Authorization"))
            if master.faults:
                fault = master.faults.pop(0)
                if fault is None:
                    self.close_connection = True
                    return
                status, content = fault
            else:
                status, content = 200, json.dumps(master.answer(method, self.path, body)).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """Ignore a client that is gone, such as a triggerer that was killed."""

    with Server(("127.0.0.1", master.port), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield master
        finally:
            server.shutdown()
            for driver in list(master.drivers.values()):
                master._kill(driver)
