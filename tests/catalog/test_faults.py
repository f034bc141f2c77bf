"""A catalog whose store is down, hangs or is collected: an error that the client can act on, and never a wrong table."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError, ServiceUnavailableError

from catalog.conftest import DEADLINE_S, lake_through, serving, session
from support.flights_lake import FlightsLake
from tallystick.catalog.lakes import READERS_MAX
from tallystick.operations.gc import collect
from tallystick.tables.reach import IcebergReach
from tallystick_devstack.testing.fault_proxy import NO_FAULT, FaultProxy, HttpFault, Seen

ANSWER_S = 3.0
TABLE = "namespaces/flights/tables/flights"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """What the catalog replied."""

    status: int
    kind: str
    retry_after: str | None


class Switched(FaultProxy):
    """A proxy to S3 whose fault is switched on and off."""

    fault: HttpFault = NO_FAULT

    def choose(self, seen: Seen) -> HttpFault:
        return self.fault


def ask(url: str, path: str, method: str = "GET") -> Replied:
    """Send one request. A reply must come before the deadline."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=DEADLINE_S)
    try:
        connection.request(method, path)
        found = connection.getresponse()
        body = found.read()
    finally:
        connection.close()
    kind = json.loads(body)["error"]["type"] if found.status >= 400 and body else ""
    return Replied(status=found.status, kind=kind, retry_after=found.headers["Retry-After"])


@pytest.fixture
def proxy(s3: str) -> Iterator[Switched]:
    with Switched(s3, method=None, remember=False) as running:
        yield running


@pytest.fixture
def url(proxy: Switched, flights: FlightsLake, uri: str, s3: str) -> Iterator[str]:
    """Yield a catalog that reads its lake through the proxy; its clients read S3 itself."""
    with serving({"flights": lake_through("flights", uri, proxy.url, answer_s=ANSWER_S)}, s3) as at:
        yield at


@pytest.mark.parametrize(
    "fault",
    [
        HttpFault(forward="never", answer="close"),
        HttpFault(forward="never", answer=503, code="SlowDown"),
        HttpFault(forward="never", answer="hang"),
    ],
    ids=["down", "slow down", "hung"],
)
def test_a_store_that_does_not_answer_is_a_503_and_afterwards_everything_works(
    url: str, proxy: Switched, fault: HttpFault
) -> None:
    begun = session(url)
    rows = begun.load_table("flights.flights").scan().to_arrow().num_rows
    prefix = begun.properties["prefix"]
    paths = [
        "/v1/config",
        f"/v1/{prefix}/namespaces",
        f"/v1/{prefix}/namespaces/flights/tables",
        f"/v1/{prefix}/{TABLE}",
        f"/v1/latest/{TABLE}",
    ]
    proxy.fault = fault
    with ThreadPoolExecutor(len(paths)) as pool:
        replies = list(pool.map(lambda path: ask(url, path), paths))
    assert {one.status for one in replies} == {503}
    assert {one.kind for one in replies} == {"ServiceUnavailableException"}
    assert all(int(one.retry_after or 0) > 0 for one in replies)
    with pytest.raises(ServiceUnavailableError):
        begun.load_table("flights.flights")
    proxy.fault = NO_FAULT
    assert begun.load_table("flights.flights").scan().to_arrow().num_rows == rows


def test_a_lake_whose_store_hangs_does_not_delay_the_others(
    proxy: Switched, flights: FlightsLake, uri: str, s3: str
) -> None:
    lakes = {
        "hung": lake_through("hung", uri, proxy.url, answer_s=30.0),
        "flights": lake_through("flights", uri, s3),
    }
    proxy.fault = HttpFault(forward="never", answer="hang")
    many = 3 * READERS_MAX
    with serving(lakes, s3) as at:
        late: list[Replied] = []
        threads = [
            threading.Thread(
                target=lambda: late.append(ask(at, "/v1/latest/namespaces/hung/tables"))
            )
            for _ in range(many)
        ]
        for thread in threads:
            thread.start()
        for _ in range(5):
            assert ask(at, "/v1/latest/namespaces/flights/tables").status == 200
        # They are all still waiting, or were refused because others were.
        assert sum(one.status == 200 for one in late) == 0
        proxy.fault = NO_FAULT
        proxy._closing.set()
        for thread in threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()


def test_a_request_that_breaks_off_in_the_middle_of_metadata_is_repeated(
    url: str, proxy: Switched, flights: FlightsLake
) -> None:
    class Once:
        left = 1

    def choose(seen: Seen) -> HttpFault:
        if ".metadata.json" in seen.path and Once.left:
            Once.left = 0
            return HttpFault(answer="cut")
        return NO_FAULT

    proxy.choose = choose  # type: ignore[method-assign]
    found: pa.Table = session(url).load_table("flights.flights").scan().to_arrow()
    assert Once.left == 0
    assert found.num_rows == len(flights.committed())


def test_a_session_whose_version_gc_collected_has_to_begin_again(
    url: str, flights: FlightsLake
) -> None:
    begun = session(url)
    begun.load_table("flights.flights")
    flights.commit_day_4()
    small = flights.small
    collect(
        small.lake,
        IcebergReach(small.store),
        delete=True,
        reader_grace=timedelta(0),
        cancel_after=None,
    )
    with pytest.raises(NoSuchTableError, match="Begin a new session"):
        begun.load_table("flights.flights")
    with pytest.raises(Exception, match="gc has deleted the metadata"):
        session(url, "flights@9")
    again = session(url).load_table("flights.flights").scan().to_arrow()
    assert again.num_rows > len(flights.committed())


def test_two_catalogs_answer_the_same_and_know_each_others_sessions(
    flights: FlightsLake, uri: str, s3: str
) -> None:
    with (
        serving({"flights": lake_through("flights", uri, s3)}, s3) as first,
        serving({"flights": lake_through("flights", uri, s3)}, s3) as second,
    ):
        old = session(first).properties["prefix"]
        ask(second, f"/v1/{old}/{TABLE}")
        flights.commit_day_4()
        new = session(first).properties["prefix"]
        for prefix in (old, new, "latest"):
            parts = [urlsplit(one) for one in (first, second)]
            bodies = []
            for one in parts:
                connection = http.client.HTTPConnection(one.hostname or "", one.port, timeout=60)
                connection.request("GET", f"/v1/{prefix}/{TABLE}")
                got = connection.getresponse()
                bodies.append((got.status, got.headers["ETag"], got.read()))
                connection.close()
            assert bodies[0] == bodies[1]
            assert bodies[0][0] == 200
