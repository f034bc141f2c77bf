"""Exports readings of lakes: as Prometheus' text, over HTTP to Prometheus, and over HTTP to an OpenTelemetry collector.

It is the only module that imports the packages of the extra `metrics`, each when it is needed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit, urlunsplit

from tallystick.cli.readings import LakeReading
from tallystick.errors import InvalidRequest, OutputUnavailable, SettingsError
from tallystick.operations.metrics import METRICS
from tallystick.runtime.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import GaugeMetricFamily

LOOPBACK = "127.0.0.1"
OTLP_PATH = "/v1/metrics"
_ADDRESS = re.compile(r"(?:(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):)?([0-9]{1,5})")
_EXPORTERS_LOGGER = "opentelemetry.exporter"


@contextmanager
def _packages() -> Iterator[None]:
    """Raise SettingsError if a package of the extra `metrics` is not installed."""
    try:
        yield
    except ImportError as error:
        raise SettingsError(
            f"tally metrics: expected the package of {error.name}, found none.",
            hint="install tallystick[metrics] where `tally` runs; --json needs no further package.",
        ) from None


# ---------------------------------------------------------------- Prometheus


def prometheus_text(readings: Sequence[LakeReading]) -> str:
    """Return the readings in Prometheus' text format; raises SettingsError if prometheus_client is not installed."""
    with _packages():
        from prometheus_client import generate_latest
    return generate_latest(_registry(lambda: readings)).decode()


def _registry(current: Callable[[], Iterable[LakeReading]]) -> CollectorRegistry:
    """Return a registry that calls `current` for each scrape."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector

    class Readings(Collector):
        def collect(self) -> Iterable[GaugeMetricFamily]:
            return _families(current())

    registry = CollectorRegistry()
    registry.register(Readings())
    return registry


def _families(readings: Iterable[LakeReading]) -> list[GaugeMetricFamily]:
    from prometheus_client.core import GaugeMetricFamily

    families: dict[str, GaugeMetricFamily] = {}
    for one in (m for reading in readings for m in reading.measurements):
        metric = METRICS[one.name]
        family = families.get(one.name)
        if family is None:
            labels = list(metric.attributes)
            family = GaugeMetricFamily(metric.prometheus, metric.meaning, labels=labels)
            families[one.name] = family
        family.add_metric([one.attributes[name] for name in metric.attributes], one.value)
    return [families[name] for name in METRICS if name in families]


def parse_address(text: str) -> tuple[str, int]:
    """Return the host and the port of `PORT`, `HOST:PORT` or `[IPv6]:PORT`; raises InvalidRequest.

    Without a host it is LOOPBACK, which only this machine reaches.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[2]) > 65_535:
        raise InvalidRequest(
            f"--serve: expected PORT or HOST:PORT, found {text!r}.",
            hint=f"use e.g. 9464, which is {LOOPBACK}:9464.",
        )
    return (found[1] or LOOPBACK).strip("[]"), int(found[2])


@contextmanager
def served(current: Callable[[], Iterable[LakeReading]], host: str, port: int) -> Iterator[int]:
    """Serve what `current` returns over HTTP, without a login, and yield the port (0: any free one).

    Raises SettingsError if the address cannot be used.
    """
    with _packages():
        from prometheus_client import start_http_server
    try:
        server, thread = start_http_server(port, addr=host, registry=_registry(current))
    except OSError as error:
        raise SettingsError(
            f"--serve {host}:{port}: expected a free address of this machine, found: {error.strerror}.",
            hint="use another port, or end the process that has it.",
        ) from None
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# ---------------------------------------------------------------- OTLP


def parse_collector(text: str) -> str:
    """Return the URL to which metrics are sent: with `/v1/metrics` if it has no path. Raises InvalidRequest.

    Messages do not contain the URL, because it may contain a password.
    """
    hint = "use e.g. http://localhost:4318."
    try:
        url = urlsplit(text)
        _ = url.port  # raises ValueError if it is not a number
    except ValueError:
        url = SplitResult("", "", "", "", "")
    if url.scheme not in ("http", "https") or not url.hostname:
        raise InvalidRequest(
            "--push: expected the URL of a collector, found something else.", hint=hint
        )
    if url.username is not None or url.password is not None:
        raise InvalidRequest(
            "--push: expected a URL without a user and a password, found one with them.",
            hint="set the variable OTEL_EXPORTER_OTLP_HEADERS, e.g. to authorization=Basic%20...",
        )
    path = url.path if url.path.strip("/") else OTLP_PATH
    return urlunsplit((url.scheme, url.netloc, path, url.query, ""))


def push(readings: Sequence[LakeReading], url: str) -> None:
    """Send the readings to a collector, with headers, certificates and time limit of the variables OTEL_EXPORTER_OTLP_*.

    Safe to repeat: a gauge has a value at a time. Raises OutputUnavailable if the collector does not accept them,
    SettingsError if the exporter is not installed.
    """
    with _packages():
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics.export import MetricExportResult
    with _last_message() as messages:
        exporter = OTLPMetricExporter(endpoint=url)
        try:
            result = exporter.export(_otlp(readings))
        finally:
            exporter.shutdown()
    if result is not MetricExportResult.SUCCESS:
        shown = urlsplit(url)
        raise OutputUnavailable(
            f"collector {shown.scheme}://{shown.netloc}: expected that it accepts the metrics, found: "
            f"{messages[-1] if messages else 'no answer'}",
            hint="check the URL, and that the collector has a receiver for OTLP over HTTP (port 4318).",
        )


@contextmanager
def _last_message() -> Iterator[list[str]]:
    """Yield a list that gets what the exporter logs, instead of standard error."""
    messages: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    logger, handler = logging.getLogger(_EXPORTERS_LOGGER), Kept(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


def _otlp(readings: Sequence[LakeReading]) -> MetricsData:
    from opentelemetry.sdk.metrics.export import (
        Gauge,
        Metric,
        MetricsData,
        NumberDataPoint,
        ResourceMetrics,
        ScopeMetrics,
    )
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    points: dict[str, list[NumberDataPoint]] = {}
    for reading in readings:
        at_ns = round(reading.at.timestamp() * 1000) * 1_000_000
        for one in reading.measurements:
            point = NumberDataPoint(
                attributes=dict(one.attributes),
                start_time_unix_nano=0,
                time_unix_nano=at_ns,
                value=one.value,
            )
            points.setdefault(one.name, []).append(point)
    gauges = [
        Metric(
            name=name,
            description=METRICS[name].meaning,
            unit=METRICS[name].unit,
            data=Gauge(data_points=of_name),
        )
        for name, of_name in points.items()
    ]
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES of the environment take precedence.
    named = Resource({"service.name": "tallystick", "service.version": VERSION})
    scope = ScopeMetrics(
        scope=InstrumentationScope("tallystick", VERSION), metrics=gauges, schema_url=""
    )
    resource = named.merge(OTELResourceDetector().detect())
    return MetricsData(
        resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scope], schema_url="")]
    )
