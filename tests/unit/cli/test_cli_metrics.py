"""`tally metrics`: text, JSON, the server for Prometheus, and a real collector that decodes OTLP."""

from __future__ import annotations

import json
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from support.metric_listeners import DEADLINE_S, until
from support.small_lake import TOPIC, SmallLake, days, good_lake
from tallystick.cli import lag, metrics, readings
from tallystick.cli.exporters import parse_address
from tallystick.cli.readings import CachedReadings, ErrorNotes, LakeReading, MeasuredLake
from tallystick.errors import InvalidRequest, KafkaUnavailable, StoreUnavailable
from tallystick.kafka.wire import PartitionEnds, TopicEnds
from tallystick.operations.metrics import METRICS
from tallystick.store.open import open_store
from unit.cli.invoke import LAKE, tally, tally_json

OTHER = "memory://other-lake"
NO_LAKE = "memory://empty-lake"


@pytest.fixture
def other() -> Iterator[str]:
    """Return the URI of a second lake, with the name of the same pipeline."""
    store = open_store(OTHER)
    good_lake(store)
    yield OTHER
    store.delete([listed.key for listed in store.list("")])


@pytest.fixture(autouse=True)
def _no_variables_of_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADERS", "ENDPOINT", "TIMEOUT", "COMPRESSION", "METRICS_TIMEOUT"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return the values of Prometheus' text by name and labels; no two may have the same."""
    found = [
        ((sample.name, tuple(sorted(sample.labels.items()))), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


def value(text: str, name: str, **labels: str) -> float | None:
    """Return the only value of a metric that has these labels, or None."""
    found = [
        value
        for (named, all_labels), value in samples(text).items()
        if named == name and labels.items() <= dict(all_labels).items()
    ]
    assert len(found) < 2
    return found[0] if found else None


def ends(lake: SmallLake) -> Callable[..., dict[str, TopicEnds]]:
    """Return what Kafka answers for the lake's topic: 10,000 records in each partition, kept for an hour."""
    topic = lake.lake.load_existing().root.topics[TOPIC]
    partitions = tuple(PartitionEnds(start=0, end=10_000, next_at_ms=None) for _ in topic.origins)
    return lambda *_: {
        TOPIC: TopicEnds(
            topic_id=topic.topic_id,
            cluster_id=topic.cluster_id,
            partitions=partitions,
            kept_ms=3_600_000,
        )
    }


# ---------------------------------------------------------------- text and JSON


def test_text_has_a_heading_and_samples_of_each_metric(lake: SmallLake) -> None:
    result = tally("metrics", LAKE, "--no-kafka")
    assert result.exit_code == 0, result.stderr
    assert value(result.stdout, "tallystick_gaps", lake=LAKE, pipeline="small") == 1
    assert value(result.stdout, "tallystick_intervals", state="committed") == 4
    assert value(result.stdout, "tallystick_lag_known") is None
    families = {f.name: f for f in text_string_to_metric_families(result.stdout)}
    assert {f.type for f in families.values()} == {"gauge"}
    by_name = {metric.prometheus: metric for metric in METRICS.values()}
    assert {name: f.documentation for name, f in families.items()} == {
        name: by_name[name].meaning for name in families
    }


def test_json_has_the_same_values_with_opentelemetrys_names(lake: SmallLake, other: str) -> None:
    answer = tally_json("metrics", LAKE, other, "--no-kafka")
    text = tally("metrics", LAKE, other, "--no-kafka").stdout
    assert [one["lake"] for one in answer["lakes"]] == [LAKE, other]
    found = {
        (METRICS[m["name"]].prometheus, tuple(sorted(m["attributes"].items()))): m["value"]
        for one in answer["lakes"]
        for m in one["measurements"]
        if m["name"] != "tallystick.commit.age"  # by the machine's clock
    }
    ages = {key for key in samples(text) if key[0] == METRICS["tallystick.commit.age"].prometheus}
    assert found == {key: at for key, at in samples(text).items() if key not in ages}
    assert len(ages) == 2
    first = answer["lakes"][0]
    assert (first["pipeline"], first["error"]) == ("small", None)
    assert first["version"] == lake.lake.load_existing().root.version


def test_lag_is_read_from_kafka(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "ends_within_limit", ends(lake))
    text = tally("metrics", LAKE).stdout
    assert value(text, "tallystick_lag_known") == 1
    found = value(text, "tallystick_lag_offsets", topic=TOPIC, partition="1")
    assert found is not None
    assert 9000 < found < 10_000
    left = value(text, "tallystick_retention_left_seconds", topic=TOPIC)
    assert left is not None
    assert left < 0


def test_kafka_that_does_not_answer_hides_nothing_else(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise KafkaUnavailable("no broker answers.", hint="start one.")

    monkeypatch.setattr(lag, "read_ends", fail)
    result = tally("metrics", LAKE)
    assert result.exit_code == 0
    assert value(result.stdout, "tallystick_lag_known") == 0
    assert value(result.stdout, "tallystick_gaps") == 1
    assert f"Lag of {LAKE} unknown (kafka_unavailable): no broker answers." in result.stderr


def test_a_lake_that_cannot_be_read_hides_no_other_and_determines_the_exit_code(
    lake: SmallLake,
) -> None:
    result = tally("metrics", NO_LAKE, LAKE, "--no-kafka")
    assert result.exit_code == 77
    assert value(result.stdout, "tallystick_lake_readable", lake=NO_LAKE) == 0
    assert value(result.stdout, "tallystick_lake_readable", lake=LAKE) == 1
    assert value(result.stdout, "tallystick_gaps", lake=LAKE) == 1
    assert "nothing_planned: " in result.stderr
    as_json = tally("metrics", NO_LAKE, LAKE, "--no-kafka", "--json")
    assert as_json.exit_code == 77
    unread, read = json.loads(as_json.stdout)["lakes"]
    assert (unread["error"]["kind"], read["error"]) == ("nothing_planned", None)
    assert json.loads(as_json.stderr)["error"] == unread["error"]


def test_a_lake_that_is_named_twice_is_measured_once(lake: SmallLake) -> None:
    assert len(tally_json("metrics", LAKE, LAKE, "--no-kafka")["lakes"]) == 1


def test_the_lake_of_the_environment_is_the_default(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tally("metrics").exit_code == 77
    monkeypatch.setenv("TALLYSTICK_LAKE", LAKE)
    (only,) = tally_json("metrics", "--no-kafka")["lakes"]
    assert only["lake"] == LAKE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--serve", "0", "--json"], "found --serve and --json"),
        (["--serve", "0", "--push", "http://localhost:1"], "found --serve and --push"),
        (["--every", "5s"], "--every: expected --serve or --push with it"),
        (["--json", "--every", "5s"], "--every: expected --serve or --push with it"),
        (["--serve", "0", "--every", "0s"], "--every: expected 1s or more, found '0s'"),
        (["--serve", "0", "--every", "soon"], "--every: expected a duration, found 'soon'"),
        (["--serve", "nowhere"], "--serve: expected PORT or HOST:PORT, found 'nowhere'"),
        (["--push", "nowhere"], "--push: expected the URL of a collector"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: list[str], message: str) -> None:
    result = tally("metrics", LAKE, *options)
    assert result.exit_code == 77
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""


def test_json_needs_no_package_and_text_names_the_extra(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("prometheus_client", "opentelemetry.exporter.otlp.proto.http.metric_exporter"):
        monkeypatch.setitem(sys.modules, name, None)
    for options in ([], ["--serve", "0"], ["--push", "http://localhost:1"]):
        result = tally("metrics", LAKE, "--no-kafka", *options)
        assert result.exit_code == 77
        assert "install tallystick[metrics]" in " ".join(result.stderr.split())
    assert tally("metrics", LAKE, "--no-kafka", "--json").exit_code == 0


# ---------------------------------------------------------------- the server


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9464", ("127.0.0.1", 9464)),
        ("localhost:1", ("localhost", 1)),
        ("0.0.0.0:65535", ("0.0.0.0", 65535)),
        ("[::1]:0", ("::1", 0)),
    ],
)
def test_an_address_without_a_host_is_the_loopback_interface(
    text: str, address: tuple[str, int]
) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", ":9464", "host", "a:b:1", "::1:1", "h:65536", "h:-1", "h:1 "])
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="--serve: expected PORT or HOST:PORT"):
        parse_address(text)


def get(port: int, accept: str = "") -> tuple[str, str]:
    """Return the content type and the text of /metrics."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def opened(*uris: str) -> list[MeasuredLake]:
    return [MeasuredLake(uri, kafka=None, no_kafka=True) for uri in uris]


def test_the_server_answers_in_both_forms_and_ends(
    lake: SmallLake, capsys: pytest.CaptureFixture[str]
) -> None:
    ports: list[int] = []

    def scrape(port: int) -> None:
        ports.append(port)
        kind, text = get(port)
        assert kind.startswith("text/plain; version=0.0.4")
        assert value(text, "tallystick_gaps", lake=LAKE) == 1
        kind, text = get(port, "application/openmetrics-text; version=1.0.0")
        assert kind.startswith("application/openmetrics-text")
        assert {f.name for f in openmetrics(text)} >= {"tallystick_gaps", "tallystick_intervals"}

    metrics.serve(opened(LAKE), "127.0.0.1", 0, every_s=30, until=scrape)
    assert capsys.readouterr().err == (
        f"Serving http://127.0.0.1:{ports[0]}/metrics, without a login.\n"
    )
    with pytest.raises(OSError, match="refused"):
        get(ports[0])


def test_a_host_that_others_reach_is_named_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    metrics.serve([], "0.0.0.0", 0, every_s=30, until=lambda _: None)
    assert "Anyone who reaches this address can read" in capsys.readouterr().err


def test_an_address_in_use_is_refused(lake: SmallLake) -> None:
    def again(port: int) -> None:
        result = tally("metrics", LAKE, "--serve", str(port))
        assert result.exit_code == 77
        message = " ".join(result.stderr.split())
        assert f"--serve 127.0.0.1:{port}: expected a free address" in message

    metrics.serve(opened(LAKE), "127.0.0.1", 0, every_s=30, until=again)


def test_a_lake_is_read_again_only_after_the_time(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(readings.time, "monotonic", lambda: clock[0])
    cached = CachedReadings(opened(LAKE), every_s=30)
    (first,) = cached.current()
    lake.plan(days(4, 5))
    clock[0] = 29.9
    assert cached.current() == [first]
    clock[0] = 30.0
    (second,) = cached.current()
    assert first.version is not None
    assert second.version == first.version + 1


class SlowLake:
    """A lake that answers when the test permits it."""

    uri = "memory://slow"

    def __init__(self) -> None:
        self.reads = 0
        self.go = threading.Event()
        self._real = MeasuredLake(NO_LAKE, kafka=None, no_kafka=True)

    def read_and_note(self) -> LakeReading:
        self.reads += 1
        assert self.go.wait(DEADLINE_S)
        return self._real.read()

    def unread(self, error: Any) -> LakeReading:
        return self._real.unread(error)


def test_a_lake_that_does_not_answer_hides_no_other(lake: SmallLake) -> None:
    slow = SlowLake()
    cached = CachedReadings([*opened(LAKE), slow], every_s=30, wait_s=0.05)  # type: ignore[list-item]

    def both() -> tuple[LakeReading, LakeReading]:
        first, second = cached.current()
        return first, second

    until(lambda: both()[0].error is None)
    late = both()[1].error
    assert late is not None
    assert "expected an answer within 0.05 s, found none" in late.message
    assert slow.reads == 1, "one reading of a lake at a time"
    slow.go.set()
    until(lambda: getattr(both()[1].error, "kind", "") == "nothing_planned")


def test_a_repeated_error_is_written_once_and_again_after_it_was_gone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    notes = ErrorNotes("Lake x cannot be read")
    down, late = (StoreUnavailable(why, hint="wait.") for why in ("down.", "late."))
    for error in (down, down, late, late, None, None, late, down):
        notes.note(error)
    written = ["down.", "late.", "late.", "down."]
    expected = [f"Lake x cannot be read (store_unavailable): {why}" for why in written]
    assert capsys.readouterr().err.splitlines() == expected


def test_the_server_writes_the_error_of_a_lake_once(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(readings.time, "monotonic", lambda: clock[0])
    cached = CachedReadings(opened(LAKE, NO_LAKE), every_s=1)
    for clock[0] in (0.0, 1.0, 2.0):
        first, second = cached.current()
        assert (first.error is None, second.error is None) == (True, False)
    assert capsys.readouterr().err.count("cannot be read") == 1


def test_a_defect_is_raised_where_the_reading_is_used(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    (broken,) = opened(LAKE)
    monkeypatch.setattr(broken, "read_and_note", lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        CachedReadings([broken], every_s=30).current()
