"""S3Store behind a proxy that loses, delays and doubles requests: it returns Unknown if nothing is proven.

The last tests show the reason for the single HTTP attempt: with each of boto3's retry modes a PUT that was applied, and
whose reply was lost, returns 412, which a caller must treat as a lost race.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tallystick.store import Applied, NotApplied, Outcome, Unknown
from tallystick.store.s3 import S3Settings, S3Store
from tallystick_devstack.testing.fault_proxy import NO_FAULT, FaultProxy, HttpFault
from tallystick_devstack.testing.store_contract import applied

LONG_TIMEOUT_S = 20.0
SHORT_TIMEOUT_S = (
    1.0  # for tests that wait for a timeout; the others must not reach it on a busy machine
)

APPLIED = {
    "closed": HttpFault(forward="once", answer="close"),
    "reset": HttpFault(forward="once", answer="reset"),
    "500": HttpFault(forward="once", answer=500, code="InternalError"),
    "503": HttpFault(forward="once", answer=503, code="SlowDown"),
    "504 of a gateway": HttpFault(forward="once", answer=504),
    "hangs": HttpFault(forward="once", answer="hang"),
}
NOT_APPLIED = {
    "closed": HttpFault(forward="never", answer="close"),
    "reset": HttpFault(forward="never", answer="reset"),
    "409": HttpFault(forward="never", answer=409, code="ConditionalRequestConflict"),
    "429": HttpFault(forward="never", answer=429, code="TooManyRequests"),
    "500": HttpFault(forward="never", answer=500, code="InternalError"),
    "503": HttpFault(forward="never", answer=503, code="SlowDown"),
    "hangs": HttpFault(forward="never", answer="hang"),
}


class Open(Protocol):
    """A function that opens the test's lake at an endpoint."""

    def __call__(self, url: str, fault: HttpFault = ..., /) -> S3Store: ...


def timeout_s(fault: HttpFault) -> float:
    return SHORT_TIMEOUT_S if fault.answer == "hang" else LONG_TIMEOUT_S


@pytest.fixture
def direct(lake_uri: str, session: boto3.session.Session) -> Open:
    def open_at(url: str, fault: HttpFault = NO_FAULT, /) -> S3Store:
        settings = S3Settings(
            endpoint_url=url, read_timeout_s=timeout_s(fault), read_attempts_max=1
        )
        return S3Store(lake_uri, settings=settings, session=session)

    return open_at


def puts(proxy: FaultProxy) -> list[list[int]]:
    """Return the statuses that the server returned for each PUT that arrived at the proxy."""
    return [request.upstream_statuses for request in proxy.seen if request.method == "PUT"]


@pytest.mark.parametrize("fault", APPLIED.values(), ids=APPLIED)
class TestAnAppliedWriteWhoseReplyIsLost:
    def test_create_is_unknown_and_a_second_try_finds_it(
        self, direct: Open, ministack_url: str, fault: HttpFault
    ) -> None:
        with FaultProxy(ministack_url, [fault]) as proxy:
            store = direct(proxy.url, fault)
            assert isinstance(store.create("a", b"one"), Unknown)
            assert puts(proxy) == [[200]]
            assert store.create("a", b"one") == NotApplied(because="exists")

    def test_create_from_a_path_is_unknown_too(
        self, direct: Open, ministack_url: str, fault: HttpFault, tmp_path: Path
    ) -> None:
        file = tmp_path / "part"
        file.write_bytes(b"p" * 300_000)
        with FaultProxy(ministack_url, [fault]) as proxy:
            store = direct(proxy.url, fault)
            assert isinstance(store.create("a", file), Unknown)
            assert puts(proxy) == [[200]]
            stored = store.get("a")
            assert stored is not None
            assert stored.body == file.read_bytes()

    def test_replace_is_unknown_and_a_second_try_returns_changed(
        self, direct: Open, ministack_url: str, fault: HttpFault
    ) -> None:
        etag = applied(direct(ministack_url).create("root.json", b"one"))
        with FaultProxy(ministack_url, [fault]) as proxy:
            store = direct(proxy.url, fault)
            assert isinstance(store.replace("root.json", b"two", expected=etag), Unknown)
            assert puts(proxy) == [[200]]
            assert store.replace("root.json", b"two", expected=etag) == NotApplied(
                because="changed"
            )
            stored = store.get("root.json")
            assert stored is not None
            assert stored.body == b"two"


@pytest.mark.parametrize("fault", NOT_APPLIED.values(), ids=NOT_APPLIED)
class TestAWriteThatNeverArrives:
    def test_create_is_unknown_and_a_second_try_applies(
        self, direct: Open, ministack_url: str, fault: HttpFault
    ) -> None:
        with FaultProxy(ministack_url, [fault]) as proxy:
            store = direct(proxy.url, fault)
            assert isinstance(store.create("a", b"one"), Unknown)
            assert store.get("a") is None
            assert isinstance(store.create("a", b"one"), Applied)

    def test_replace_is_unknown_and_a_second_try_applies(
        self, direct: Open, ministack_url: str, fault: HttpFault
    ) -> None:
        etag = applied(direct(ministack_url).create("root.json", b"one"))
        with FaultProxy(ministack_url, [fault]) as proxy:
            store = direct(proxy.url, fault)
            assert isinstance(store.replace("root.json", b"two", expected=etag), Unknown)
            assert isinstance(store.replace("root.json", b"two", expected=etag), Applied)


class TestAWriteThatArrivesLate:
    @pytest.mark.parametrize("answer", ["close", "hang"])
    def test_it_cannot_be_applied_after_its_second_try_was_applied(
        self, direct: Open, ministack_url: str, answer: Literal["close", "hang"]
    ) -> None:
        etag = applied(direct(ministack_url).create("root.json", b"one"))
        late = HttpFault(forward="later", answer=answer)
        with FaultProxy(ministack_url, [late]) as proxy:
            store = direct(proxy.url, late)
            assert isinstance(store.replace("root.json", b"two", expected=etag), Unknown)
            second = applied(store.replace("root.json", b"two", expected=etag))
            third = applied(store.replace("root.json", b"three", expected=second))
            assert proxy.release() == 412
            stored = store.get("root.json")
            assert stored is not None
            assert (stored.body, stored.etag) == (b"three", third)

    def test_it_cannot_be_applied_after_its_second_try_lost_the_race(
        self, direct: Open, ministack_url: str
    ) -> None:
        other = direct(ministack_url)
        etag = applied(other.create("root.json", b"one"))
        with FaultProxy(ministack_url, [HttpFault(forward="later", answer="close")]) as proxy:
            store = direct(proxy.url)
            assert isinstance(store.replace("root.json", b"mine", expected=etag), Unknown)
            assert isinstance(other.replace("root.json", b"theirs", expected=etag), Applied)
            assert store.replace("root.json", b"mine", expected=etag) == NotApplied(
                because="changed"
            )
            assert proxy.release() == 412
            stored = store.get("root.json")
            assert stored is not None
            assert stored.body == b"theirs"

    def test_before_that_it_can_be_applied_so_a_read_proves_nothing(
        self, direct: Open, ministack_url: str
    ) -> None:
        """Unknown is resolved by sending again, not by reading: a read finds nothing, and then the write is applied."""
        etag = applied(direct(ministack_url).create("root.json", b"one"))
        with FaultProxy(ministack_url, [HttpFault(forward="later", answer="close")]) as proxy:
            store = direct(proxy.url)
            assert isinstance(store.replace("root.json", b"two", expected=etag), Unknown)
            stored = store.get("root.json")
            assert stored is not None
            assert stored.body == b"one"
            assert proxy.release() == 200
            stored = store.get("root.json")
            assert stored is not None
            assert stored.body == b"two"


def test_a_gateway_that_retries_turns_a_success_into_not_applied(
    direct: Open, ministack_url: str
) -> None:
    """A single attempt cannot prevent this. Therefore success is read from the root and never from the reply."""
    etag = applied(direct(ministack_url).create("root.json", b"one"))
    with FaultProxy(ministack_url, [HttpFault(forward="twice")]) as proxy:
        store = direct(proxy.url)
        assert store.replace("root.json", b"two", expected=etag) == NotApplied(because="changed")
        assert puts(proxy) == [[200, 412]]
        stored = store.get("root.json")
        assert stored is not None
        assert stored.body == b"two"


@pytest.mark.parametrize("answer", ["close", "reset"])
def test_a_forward_proxy_that_fails_after_sending_leaves_the_outcome_unknown(
    direct: Open,
    ministack_url: str,
    monkeypatch: pytest.MonkeyPatch,
    answer: Literal["close", "reset"],
) -> None:
    """urllib3 reports "Unable to connect to proxy", although the request was sent: it must not count as never sent."""
    with FaultProxy(ministack_url, [HttpFault(forward="never", answer=answer)]) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "")
        outcome: Outcome = direct(ministack_url).create("a", b"one")
        assert isinstance(outcome, Unknown)
        assert len(proxy.seen) == 1


def test_no_environment_variable_switches_retries_on(
    on_ministack: str, lake_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "5")
    monkeypatch.setenv("AWS_RETRY_MODE", "adaptive")
    with FaultProxy(
        on_ministack, [HttpFault(forward="once", answer=503, code="SlowDown")]
    ) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.url)
        assert S3Store(lake_uri).create("a", b"one") == Unknown(because="HTTP 503 SlowDown")
        assert puts(proxy) == [[200]]


class TestReads:
    def test_a_read_is_retried(
        self, ministack_url: str, lake_uri: str, session: boto3.session.Session
    ) -> None:
        faults = [HttpFault(forward="never", answer=503, code="SlowDown"), HttpFault(answer="cut")]
        with FaultProxy(ministack_url, faults, method="GET") as proxy:
            store = S3Store(lake_uri, settings=S3Settings(endpoint_url=proxy.url), session=session)
            store.create("a", b"0123456789")
            stored = store.get("a")
            assert stored is not None
            assert stored.body == b"0123456789"
            assert [request.method for request in proxy.seen] == ["PUT", "GET", "GET", "GET"]


@pytest.mark.parametrize("mode", [None, "legacy", "standard", "adaptive"], ids=str)
@pytest.mark.parametrize(
    "fault",
    [APPLIED[name] for name in ("closed", "500", "503", "hangs")],
    ids=lambda f: str(f.answer),
)
def test_boto3_with_its_own_retries_reports_an_applied_put_as_a_lost_race(
    ministack_url: str,
    lake_uri: str,
    session: boto3.session.Session,
    mode: Literal["legacy", "standard", "adaptive"] | None,
    fault: HttpFault,
) -> None:
    with FaultProxy(ministack_url, [fault]) as proxy:
        config = Config(read_timeout=timeout_s(fault))
        if mode is not None:
            config = config.merge(Config(retries={"mode": mode}))
        client = session.client("s3", endpoint_url=proxy.url, config=config)
        key = f"{lake_uri.rpartition('/')[2]}/root.json"
        with pytest.raises(ClientError) as raised:
            client.put_object(Bucket="contract", Key=key, Body=b"mine", IfNoneMatch="*")
        reply = raised.value.response["ResponseMetadata"]
        assert (reply["HTTPStatusCode"], reply["RetryAttempts"]) == (412, 1)
        assert puts(proxy) == [[200], [412]]
        assert client.get_object(Bucket="contract", Key=key)["Body"].read() == b"mine"
