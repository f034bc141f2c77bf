"""The processes of the real command: two catalogs of a lake, and runs of `tally compact` and `tally gc --delete`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from bench.parts.polls_client import CatalogPlaces
from bench.parts.polls_history import SeenVersion
from tallystick.catalog.tokens import new_token, token_line
from tallystick.cli.errors import RETRY_LATER

TALLY = (sys.executable, "-c", "from tallystick.cli import main; main()")
TARGET = "64KB"
_ENDS_WITHIN_S = 60.0
_REQUEST = re.compile(r" INFO (?:GET|HEAD|POST) \S+ (\d+) \d+ ms$")
_DEFECT = re.compile(r" ERROR |Traceback")


@dataclass(slots=True)
class CatalogLog:
    """What one catalog wrote to standard error: its answers by status, and the lines of defects."""

    name: str
    statuses: Counter[str] = field(default_factory=Counter)
    defects: list[str] = field(default_factory=list)

    def read(self, path: Path) -> None:
        """Add the lines of a file."""
        for line in path.read_text().splitlines():
            if found := _REQUEST.search(line):
                self.statuses[found[1]] += 1
            elif _DEFECT.search(line):
                self.defects.append(f"catalog {self.name}: {line[:200]}")


@contextmanager
def catalogs(
    uri: str, s3: str, folder: Path
) -> Iterator[tuple[CatalogPlaces, tuple[CatalogLog, CatalogLog]]]:
    """Run a catalog without tokens and one with a token, for one lake. Their logs are complete after the block."""
    lake = uri.rpartition("/")[2]
    token = new_token()
    tokens = folder / "tokens"
    tokens.write_text(f"{token_line(token, [lake])}\n")
    logs = CatalogLog(name="without tokens"), CatalogLog(name="with a token")
    options = ((), ("--tokens", str(tokens)))
    with ExitStack() as stack:
        started = []
        for number, (log, more) in enumerate(zip(logs, options, strict=True)):
            stderr = folder / f"catalog-{number}.log"
            stack.callback(log.read, stderr)
            started.append(stack.enter_context(_catalog(uri, log, stderr.open("wb"), *more)))
        # Both import their packages at the same time.
        free, guarded = (_url(process) for process in started)
        yield (
            CatalogPlaces(free=free, guarded=guarded, token=token, lake=lake, s3=s3),
            logs,
        )


@contextmanager
def _catalog(
    uri: str, log: CatalogLog, stderr: IO[bytes], *options: str
) -> Iterator[subprocess.Popen[bytes]]:
    with (
        stderr,
        subprocess.Popen(
            [*TALLY, "catalog", uri, "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=stderr,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                code = process.wait(_ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            if code != -signal.SIGTERM:
                log.defects.append(f"catalog {log.name}: ended with {code}")


def _url(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    found = re.fullmatch(r"Serving \S+ at (http://\S+)\n", line)
    if found is None:
        raise SystemExit(f"tally catalog: expected its address, found {line!r}")
    return found[1]


class Maintenance:
    """Runs of `tally compact` and `tally gc --delete`, one at a time. `seen`: what the compactions published, and when.

    A compaction runs after each `every` commits, and gc in the middle between two compactions. `put_off`: runs that ended
    with the request to try again later, as when commits won every swap for ten minutes.
    """

    def __init__(self, uri: str, *, every: int, grace_s: int) -> None:
        self._uri = uri
        self._every = every
        self._grace_s = grace_s
        self.compact_runs = 0
        self.gc_runs = 0
        self.deleted = 0
        self.put_off = 0
        self.seen: list[SeenVersion] = []
        self.errors: list[str] = []

    def has_done_all(self, commits: int) -> bool:
        """Return True if nothing is due after a number of commits, or a run has failed."""
        return bool(self.errors) or not (self._is_compact_due(commits) or self._is_gc_due(commits))

    def run_due(self, commits: int) -> None:
        """Run what is due. Safe to repeat: both commands are."""
        if self._is_compact_due(commits):
            self.compact_runs += 1
            self._compact()
        if self._is_gc_due(commits):
            self.gc_runs += 1
            self._collect()

    def _is_compact_due(self, commits: int) -> bool:
        return commits // self._every > self.compact_runs

    def _is_gc_due(self, commits: int) -> bool:
        return (commits + self._every // 2) // self._every > self.gc_runs

    def _compact(self) -> None:
        options = ("--older-than", "1s", "--target-size", TARGET)
        form = self._tally("compact", self._uri, *options, "--json")
        if form is not None and form["tables"]:
            self.seen.append(SeenVersion(version=form["version"], at_s=time.time()))

    def _collect(self) -> None:
        grace = f"{self._grace_s}s"
        form = self._tally("gc", self._uri, "--delete", "--reader-grace", grace, "--json")
        if form is not None:
            self.deleted += sum(heap["objects"] for heap in form["garbage"].values())

    def _tally(self, *words: str) -> Any:
        """Run the command and return its JSON; None if it is put off, or failed, which is kept as an error."""
        done = subprocess.run([*TALLY, *words], capture_output=True, check=False)
        if done.returncode == RETRY_LATER:
            self.put_off += 1
            return None
        if done.returncode:
            stderr = " ".join(done.stderr.decode().split())[-500:]
            self.errors.append(f"tally {words[0]} ended with {done.returncode}: {stderr}")
            return None
        return json.loads(done.stdout)
