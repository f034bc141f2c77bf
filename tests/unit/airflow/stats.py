"""Airflow's stats in a test, configured as the process of a task configures them, with a real listener."""

from __future__ import annotations

import atexit
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from airflow.sdk._shared.observability.metrics import otel_logger
from airflow.sdk._shared.observability.metrics import stats as shared
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk._shared.observability.metrics.statsd_logger import SafeStatsdLogger
from airflow.sdk.configuration import conf
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics.stats_utils import get_stats_factory
from opentelemetry import metrics

from support.metric_listeners import (
    Labels,
    OtlpCollector,
    StatsdServer,
    labels,
    otlp_collector,
    statsd_server,
)

_END = "end_of_test"
_LINE = re.compile(r"airflow\.([a-z_.]+)((?:,[a-z]+=[^,:]+)*):([0-9.]+)\|(c|ms)")


def initialize() -> None:
    """Do what `airflow.sdk.execution_time.task_runner.main` does before it runs a task."""
    legacy = conf.getboolean("metrics", "legacy_names_on")
    stats.initialize(factory=get_stats_factory(), export_legacy_names=legacy)


@contextmanager
def configured(monkeypatch: pytest.MonkeyPatch, **options: str) -> Iterator[None]:
    """Set options of the section [metrics], and initialize the stats with them."""
    for name, value in options.items():
        monkeypatch.setenv(f"AIRFLOW__METRICS__{name.upper()}", value)
    initialize()
    try:
        yield
    finally:
        _close()
        stats.initialize(factory=NoStatsLogger, export_legacy_names=False)


def _close() -> None:
    """Do what the end of a task's process does: close the socket of StatsD, and send what OpenTelemetry has left."""
    backend = shared._backend
    if isinstance(backend, SafeStatsdLogger):
        backend.statsd.close()
    if isinstance(backend, otel_logger.SafeOtelLogger):
        backend.otel.shutdown()  # type: ignore[attr-defined]
        atexit.unregister(otel_logger.flush_otel_metrics)


class SentToStatsd:
    """What a test sent to StatsD."""

    def __init__(self, server: StatsdServer) -> None:
        self._server = server

    def lines(self) -> list[tuple[str, dict[str, str], float, str]]:
        """Return name, tags, value and kind of each line since the last call. Other lines are a failure."""
        stats.incr(_END)
        found = []
        for line in self._server.lines_to(f"airflow.{_END}:"):
            match = _LINE.fullmatch(line)
            assert match is not None, line
            tags = dict(pair.split("=") for pair in match[2].split(",") if pair)
            found.append((match[1], tags, float(match[3]), match[4]))
        return found


@contextmanager
def statsd(monkeypatch: pytest.MonkeyPatch, *, tags: bool = True) -> Iterator[SentToStatsd]:
    """Send Airflow's stats to a StatsD server, with tags in InfluxDB's form."""
    with (
        statsd_server() as server,
        configured(
            monkeypatch,
            statsd_on="True",
            statsd_host="127.0.0.1",
            statsd_port=str(server.port),
            statsd_influxdb_enabled=str(tags),
        ),
    ):
        yield SentToStatsd(server)


class SentToOtlp:
    """What a test sent to an OpenTelemetry collector."""

    def __init__(self, collector: OtlpCollector) -> None:
        self._collector = collector

    def sums(self) -> dict[tuple[str, Labels], float]:
        """Return the values of the counters by name and attributes; all must be deltas, as configured."""
        metrics.get_meter_provider().force_flush()  # type: ignore[attr-defined]
        found: dict[tuple[str, Labels], float] = {}
        for metric in self._collector.metrics:
            assert metric.WhichOneof("data") != "sum" or metric.sum.aggregation_temporality == 1
            for point in metric.sum.data_points:
                key = (metric.name, labels(point))
                found[key] = found.get(key, 0) + (point.as_int or point.as_double)
        return found

    def histograms(self) -> dict[tuple[str, str, Labels], tuple[int, float]]:
        """Return count and sum of the histograms by name, unit and attributes."""
        metrics.get_meter_provider().force_flush()  # type: ignore[attr-defined]
        return {
            (metric.name, metric.unit, labels(point)): (point.count, point.sum)
            for metric in self._collector.metrics
            for point in metric.exponential_histogram.data_points
        }


@contextmanager
def otlp(monkeypatch: pytest.MonkeyPatch) -> Iterator[SentToOtlp]:
    """Send Airflow's stats to an OpenTelemetry collector, with the temporality of docs/how-to/metrics.md."""
    with otlp_collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
        with configured(monkeypatch, otel_on="True"):
            yield SentToOtlp(collector)
