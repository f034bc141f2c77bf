"""The memory of publishing, by the number of rows and the kind of output: it must be constant.

    python -m bench.parts.publish_memory [--rows 1000000 5000000] [--kinds topic files ...]

Rows are read as a publisher reads them, from Parquet files of 250,000 rows that are generated on read. Each measurement
runs in its own process, with the real output; only its receiver (broker, HTTP, mail server, database) is replaced by one
that accepts everything. The base is the process's resident memory after publishing 150,000 rows, the peak is its highest
resident memory. Disk is the highest usage of the temporary folder (sampled), without the files of a FileOutput. Exits
with 0 only if the most rows took at most 256 MiB more than the fewest, for each kind.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.parts.memory import resident_kib
from tallystick.connections.http import HttpSettings
from tallystick.connections.smtp import SmtpSettings
from tallystick.format.interval import Interval
from tallystick.outputs.calls import EmailOutput, HttpOutput
from tallystick.outputs.calls.email import Mailbox
from tallystick.outputs.calls.http import HttpAnswer, HttpReceiver
from tallystick.outputs.changes import changes
from tallystick.outputs.files import FileOutput, Folder
from tallystick.outputs.kafka import KafkaOutput
from tallystick.outputs.kafka.topic import KafkaTopic
from tallystick.outputs.port import NoRows, Publication, Scope
from tallystick.outputs.postgres import stage as postgres_stage
from tallystick.store.memory import MemoryStore
from tallystick.tables.rows import StoredRows

FILE_ROWS = 250_000
GROWTH_MIB = 256.0
LINEAGE = ("_topic", "_kafka_partition", "_offset")
DAY = Interval(start=datetime(2013, 1, 1, tzinfo=UTC), end=datetime(2013, 1, 2, tzinfo=UTC))
SCOPE = Scope(lake="memory://bench", pipeline="bench")


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    key: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredFile:
    body: bytes


class GeneratedFiles:
    """A store whose files are generated on read. With `apart`, the offsets of a range alternate between two files."""

    uri = "memory://bench"

    def __init__(self, value: str, *, apart: bool) -> None:
        self.value, self.apart = value, apart

    def get(self, key: str) -> _StoredFile:
        """Return the Parquet file of that number."""
        number, rows = (int(part) for part in key.split("-"))
        first = number * FILE_ROWS
        offsets = range(first, first + rows)
        if self.apart:
            pair = number // 2 * 2 * FILE_ROWS
            offsets = range(pair + number % 2, pair + number % 2 + 2 * rows, 2)
        at = pa.array(offsets, pa.int64())
        table = pa.table(
            {
                "_topic": pa.array(["flights"] * rows),
                "_kafka_partition": pa.array([0] * rows, pa.int32()),
                "_offset": at,
                "flight": at.cast(pa.string()),
                "to": pa.array(["one@example.org"] * rows),
                "note": pa.array([self.value] * rows),
            }
        )
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, row_group_size=65_536)
        return _StoredFile(body=sink.getvalue().to_pybytes())


def rows_of(count: int, value: str = "a row of some length", *, apart: bool = False) -> StoredRows:
    """Return that many rows, in files."""
    files: list[Any] = []
    for number, first in enumerate(range(0, count, FILE_ROWS)):
        rows = min(FILE_ROWS, count - first)
        files.append(_File(key=f"{number}-{rows}", rows=rows))
    store: Any = GeneratedFiles(value, apart=apart)
    return StoredRows(store, files)


def publication(count: int, *, apart: bool = False, before: bool = False) -> Publication:
    """Return the rows of one interval. With `before`, half as many were published before, and each is changed."""
    return Publication(
        pipeline="bench",
        output="bench",
        interval=DAY,
        generation=2 if before else 1,
        plan="a" * 32,
        identity=LINEAGE,
        rows=rows_of(count, apart=apart),
        instead_of="b" * 32 if before else None,
        generation_before=1 if before else None,
        rows_before=rows_of(count // 2, "the old text", apart=apart) if before else NoRows(),
    )


# ---------------------------------------------------------------- receivers that accept everything


class _Producer:
    def send_all(self, topic: str, messages: Iterator[Any], **of: Any) -> None:
        for _ in messages:
            pass


class _Discarding(MemoryStore):
    """A store that discards the notes: those of millions of calls would be this process's memory."""

    def create(self, key: str, body: bytes) -> Any:
        outcome = super().create(key, body)
        self._objects.clear()
        return outcome


class _Session:
    def copy(self, statement: Any, rows: Sequence[Any]) -> None:
        """Accept the rows."""


def _topic(published: Publication, folder: Path) -> None:
    output = KafkaTopic(KafkaOutput(name="bench", table="t", topic="t", key=["flight"]), dict)  # type: ignore[arg-type]
    output._producer = _Producer()
    output.publish(published, resumed=False)


def _files(published: Publication, folder: Path) -> None:
    output = Folder(FileOutput(name="bench", table="t", folder=str(folder / "published")))
    output.begin(SCOPE)
    output.prepare(published)
    output.publish(published, resumed=False)


def _calls(published: Publication, folder: Path, **how: Any) -> None:
    declared = HttpOutput(
        name="bench", table="t", url="http://receiver.example/", concurrency=1, **how
    )
    output = HttpReceiver(declared, HttpSettings, _Discarding("bench"))
    output._send = lambda *_: HttpAnswer(status=200, text="")  # type: ignore[method-assign]
    output.prepare(published)
    output.begin(SCOPE)
    output.publish(published, resumed=False)


def _calls_once(published: Publication, folder: Path) -> None:
    _calls(published, folder, key=["flight"], replaced="once")


def _emails(published: Publication, folder: Path) -> None:
    declared = EmailOutput(
        name="bench",
        table="t",
        to="to",
        subject="Flight {flight}",
        body="{note}",
        sender="sender@example.org",
        key=["flight"],
    )
    settings = SmtpSettings(host="mail.example", security="none")
    Mailbox(declared, lambda: settings, MemoryStore("bench")).prepare(published)


def _database(published: Publication, folder: Path) -> None:
    schema = next(published.rows.batches()).schema
    session: Any = _Session()
    postgres_stage._copy(session, schema.names, schema, published)


def _changes(published: Publication, folder: Path) -> None:
    for _ in changes(published, published.identity):
        pass


KINDS: dict[str, tuple[Callable[[Publication, Path], None], dict[str, bool]]] = {
    "topic": (_topic, {}),
    "topic-apart": (_topic, {"apart": True}),
    "topic-replaced": (_topic, {"before": True}),
    "files": (_files, {}),
    "calls": (_calls, {}),
    "calls-once": (_calls_once, {}),
    "emails": (_emails, {}),
    "database": (_database, {}),
    "changes-apart-replaced": (_changes, {"apart": True, "before": True}),
}

# ---------------------------------------------------------------- measuring


def _sampled(folder: Path, most: list[int], stop: threading.Event) -> None:
    while not stop.wait(0.5):
        total = 0
        for place, _, names in os.walk(folder):
            for name in names:
                try:
                    total += (Path(place) / name).stat().st_blocks * 512
                except OSError:
                    continue
        most[0] = max(most[0], total)


def alone(kind: str, rows: int) -> None:
    """Publish in a process of its own, and print memory, disk and time as JSON."""
    work, how = KINDS[kind]
    with tempfile.TemporaryDirectory(prefix="bench-publish-") as name:
        folder = Path(name)
        (folder / "temporary").mkdir()
        tempfile.tempdir = str(folder / "temporary")
        work(publication(150_000, **how), folder / "warm")
        base = resident_kib("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        disk, stop = [0], threading.Event()
        sampler = threading.Thread(target=_sampled, args=(folder / "temporary", disk, stop))
        sampler.start()
        began = time.monotonic()
        try:
            work(publication(rows, **how), folder / "measured")
        finally:
            stop.set()
            sampler.join()
        took = time.monotonic() - began
        peak = resident_kib("VmHWM")
    print(json.dumps({"base_kib": base, "peak_kib": peak, "disk": disk[0], "s": took}))


def main() -> int:
    """Measure each kind and number of rows, and print one line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 5_000_000])
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--alone", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        alone(arguments.alone[0], int(arguments.alone[1]))
        return 0
    grown = False
    for kind in arguments.kinds:
        peaks = []
        for rows in sorted(arguments.rows):
            printed = subprocess.run(
                [sys.executable, "-m", "bench.parts.publish_memory", "--alone", kind, str(rows)],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            ).stdout
            measured = json.loads(printed)
            peaks.append(measured["peak_kib"] / 1024)
            print(
                f"{kind:22} {rows:>11,} rows: base {measured['base_kib'] / 1024:6.1f} MiB, peak {peaks[-1]:6.1f} MiB, "
                f"disk {measured['disk'] / rows:5.1f} bytes a row, {measured['s']:6.1f} s",
                flush=True,
            )
        grown |= peaks[-1] - peaks[0] > GROWTH_MIB
    if grown:
        print(f"memory grew with the rows by more than {GROWTH_MIB:g} MiB", file=sys.stderr)
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
