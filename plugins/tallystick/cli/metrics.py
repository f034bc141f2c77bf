"""`tally metrics`: prints the measurements of lakes, serves them to Prometheus, or sends them to a collector."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.cli.errors import busy, note, out, out_json, print_error
from tallystick.cli.exporters import parse_address, parse_collector, prometheus_text, push, served
from tallystick.cli.gc import duration
from tallystick.cli.readings import CachedReadings, LakeReading, MeasuredLake
from tallystick.errors import InvalidRequest, TallystickError
from tallystick.format import keys

EVERY = "30s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exports:
    """The options that select where the measurements go: `serve`, `push`, `as_json`, or none of them for text."""

    serve: str | None = None
    push: str | None = None
    every: str | None = None
    as_json: bool = False


def run(uris: Sequence[str], *, kafka: str | None, no_kafka: bool, exports: Exports) -> None:
    """Export the measurements of the lakes as the options select.

    Raises InvalidRequest if an option is wrong or excludes another one. Raises the error of the first lake that could not
    be read, after the measurements of all lakes are written or sent.
    """
    every_s = _every_s(exports)
    address = None if exports.serve is None else parse_address(exports.serve)
    url = None if exports.push is None else parse_collector(exports.push)
    opened = [MeasuredLake(uri, kafka=kafka, no_kafka=no_kafka) for uri in uris or (None,)]
    lakes = list({lake.uri: lake for lake in opened}.values())
    if address is not None:
        serve(lakes, *address, every_s=every_s)
    elif url is not None and exports.every is not None:
        push_repeatedly(lakes, url, every_s=every_s)
    else:
        readings = _read_all(lakes)
        _write(readings, url, as_json=exports.as_json)
        _raise_first(readings, as_json=exports.as_json)


def _every_s(exports: Exports) -> float:
    """Return the seconds between two readings; raises InvalidRequest if the options do not fit each other."""
    goals = {"--serve": exports.serve, "--push": exports.push, "--json": exports.as_json or None}
    named = [name for name, value in goals.items() if value is not None]
    if len(named) > 1:
        raise InvalidRequest(
            f"tally metrics: expected one of {', '.join(goals)}, found {' and '.join(named)}.",
            hint="run the command once for each.",
        )
    if exports.every is not None and named not in (["--serve"], ["--push"]):
        raise InvalidRequest(
            "--every: expected --serve or --push with it, found neither.", hint="add one of them."
        )
    every_s = duration(exports.every or EVERY, "--every").total_seconds()
    if not every_s:
        raise InvalidRequest(
            f"--every: expected 1s or more, found {exports.every!r}.", hint="use e.g. 30s or 5m."
        )
    return every_s


def _read_all(lakes: Sequence[MeasuredLake]) -> list[LakeReading]:
    with busy("reading the ledgers"):
        return [lake.read() for lake in lakes]


def _write(readings: Sequence[LakeReading], url: str | None, *, as_json: bool) -> None:
    if url is not None:
        with busy("sending to the collector"):
            push(readings, url)
    elif as_json:
        out_json({"lakes": [_document(reading) for reading in readings]})
    else:
        out(prometheus_text(readings).removesuffix("\n"))


def _raise_first(readings: Sequence[LakeReading], *, as_json: bool) -> None:
    errors = [reading.error for reading in readings if reading.error is not None]
    for error in errors[1:]:
        if not as_json:  # the document has them all
            print_error(error, as_json=False)
    if errors:
        raise errors[0]


def _document(reading: LakeReading) -> dict[str, Any]:
    error = reading.error
    return {
        "lake": reading.uri,
        "pipeline": reading.pipeline,
        "version": reading.version,
        "at": keys.instant(reading.at),
        "measurements": [
            {"name": m.name, "value": m.value, "unit": m.unit, "attributes": dict(m.attributes)}
            for m in reading.measurements
        ],
        "error": None
        if error is None
        else {"kind": error.kind, "message": error.message, "hint": error.hint},
    }


def serve(
    lakes: Sequence[MeasuredLake],
    host: str,
    port: int,
    *,
    every_s: float,
    until: Callable[[int], object] | None = None,
) -> None:
    """Serve the measurements over HTTP, without a login, until the process is interrupted.

    `until`: called with the port when the server answers; the server ends when it returns. Raises SettingsError if the
    address cannot be used.
    """
    with served(CachedReadings(lakes, every_s=every_s).current, host, port) as found:
        shown = f"[{host}]" if ":" in host else host
        note(f"Serving http://{shown}:{found}/metrics, without a login.")
        if not _is_loopback(host):
            note("Anyone who reaches this address can read the names of lakes, topics and outputs.")
        if until is None:
            threading.Event().wait()
        else:
            until(found)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def push_repeatedly(
    lakes: Sequence[MeasuredLake],
    url: str,
    *,
    every_s: float,
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Send the measurements every `every_s` seconds until the process is interrupted; errors go to standard error.

    Safe to repeat: a gauge has a value at a time.
    """
    while True:
        readings = [lake.read_and_note() for lake in lakes]
        try:
            push(readings, url)
        except TallystickError as error:
            print_error(error, as_json=False)
        pause(every_s)
