"""`tally metrics --push`: a real collector decodes what it gets over OTLP/HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.metric_listeners import Labels, OtlpCollector, labels, otlp_collector
from support.small_lake import SmallLake, good_lake
from tallystick.cli import exporters, metrics
from tallystick.cli.exporters import parse_collector
from tallystick.cli.readings import MeasuredLake
from tallystick.errors import InvalidRequest, OutputUnavailable
from tallystick.store.open import open_store
from unit.cli.invoke import LAKE, tally, tally_json

OTHER = "memory://pushed-lake"
NO_LAKE = "memory://empty-lake"


@pytest.fixture(autouse=True)
def _no_variables_of_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADERS", "ENDPOINT", "TIMEOUT", "COMPRESSION", "METRICS_TIMEOUT"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)


@pytest.fixture
def other() -> Iterator[str]:
    """Return the URI of a second lake, with the name of the same pipeline."""
    store = open_store(OTHER)
    good_lake(store)
    yield OTHER
    store.delete([listed.key for listed in store.list("")])


def opened(*uris: str) -> list[MeasuredLake]:
    return [MeasuredLake(uri, kafka=None, no_kafka=True) for uri in uris]


def points(collector: OtlpCollector) -> dict[tuple[str, Labels], tuple[float, str]]:
    """Return value and unit of each point, by name and attributes."""
    return {
        (metric.name, labels(point)): (
            point.as_double if point.HasField("as_double") else point.as_int,
            metric.unit,
        )
        for metric in collector.metrics
        for point in metric.gauge.data_points
    }


@pytest.fixture
def collector() -> Iterator[OtlpCollector]:
    with otlp_collector() as found:
        yield found


def test_push_sends_the_values_of_the_json_once(
    lake: SmallLake, other: str, collector: OtlpCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20canary")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    result = tally("metrics", LAKE, other, "--no-kafka", "--push", collector.url)
    assert (result.exit_code, result.stdout) == (0, ""), result.stderr
    ((path, headers, sent),) = collector.requests
    assert path == "/v1/metrics"
    assert headers["authorization"] == "Bearer canary"
    (resource,) = sent.resource_metrics
    named = {a.key: a.value.string_value for a in resource.resource.attributes}
    assert named["service.name"] == "tallystick"
    assert named["deployment.environment.name"] == "test"
    answer = tally_json("metrics", LAKE, other, "--no-kafka")
    expected = {
        (m["name"], tuple(sorted(m["attributes"].items()))): (m["value"], m["unit"])
        for one in answer["lakes"]
        for m in one["measurements"]
    }
    found = points(collector)
    assert set(found) == set(expected)
    ages = {key for key in expected if key[0] == "tallystick.commit.age"}
    assert {k: v for k, v in found.items() if k not in ages} == {
        k: v for k, v in expected.items() if k not in ages
    }


def test_push_of_a_lake_that_cannot_be_read_sends_that_and_ends_with_its_code(
    lake: SmallLake, collector: OtlpCollector
) -> None:
    result = tally("metrics", NO_LAKE, "--push", collector.url)
    assert result.exit_code == 77
    assert points(collector) == {("tallystick.lake.readable", (("lake", NO_LAKE),)): (0, "{lake}")}


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_collector_that_refuses_is_an_error_without_a_secret(
    lake: SmallLake, collector: OtlpCollector, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20canary")
    collector.status = status
    result = tally("metrics", LAKE, "--no-kafka", "--push", collector.url)
    assert result.exit_code == 75
    message = " ".join(result.stderr.split())
    assert f"collector {collector.url}: expected that it accepts the metrics" in message
    assert str(status) in message
    assert "canary" not in result.stderr
    assert len(collector.requests) == 1


def test_push_with_every_goes_on_after_errors(
    lake: SmallLake, collector: OtlpCollector, capsys: pytest.CaptureFixture[str]
) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        collector.status = [400, 200, 200][len(pauses) - 1]
        if len(pauses) == 3:
            raise KeyboardInterrupt

    lakes = opened(LAKE, NO_LAKE)
    with pytest.raises(KeyboardInterrupt):
        metrics.push_repeatedly(lakes, collector.url + "/v1/metrics", every_s=5, pause=pause)
    assert pauses == [5, 5, 5]
    assert len(collector.requests) == 3
    errors = capsys.readouterr().err
    assert errors.count("output_unavailable: ") == 1
    assert errors.count(f"Lake {NO_LAKE} cannot be read (nothing_planned): ") == 1


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://localhost:4318", "http://localhost:4318/v1/metrics"),
        ("https://otel.example/", "https://otel.example/v1/metrics"),
        ("http://[::1]:4318/own/path?a=b", "http://[::1]:4318/own/path?a=b"),
    ],
)
def test_a_collector_without_a_path_gets_the_path_of_otlp(text: str, url: str) -> None:
    assert parse_collector(text) == url


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost:4318",
        "grpc://localhost:4317",
        "http://",
        "http://h:port",
        "http://h:99999",
        "http://user:canary@h:4318",
        "http://canary@h",
        "user:canary@h:4318",
        "http://user:canary@[h",
    ],
)
def test_other_urls_are_refused_and_never_quoted(text: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse_collector(text)
    assert str(raised.value).startswith("--push: expected ")
    assert "canary" not in str(raised.value)


def test_a_collector_that_is_not_there_is_an_error_that_names_it(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")
    with otlp_collector() as gone:
        url = gone.url
    with pytest.raises(OutputUnavailable, match=f"collector {url}: expected that it accepts"):
        exporters.push([one.read() for one in opened(LAKE)], parse_collector(url))
