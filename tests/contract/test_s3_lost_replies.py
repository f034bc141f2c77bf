"""S3Store behind a proxy that loses, delays and doubles requests: it says Unknown where nothing is proven.

The last tests show the reason for the one HTTP attempt: with each of boto3's retry modes a PUT that landed, and whose
reply was lost, comes back as 412, which a caller must take for a lost race.
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

PATIENT_S = 20.0
IMPATIENT_S = 1.0  # what the tests that wait for a timeout take; the others must not meet one on a busy machine

LANDED = {
    "closed": HttpFault(forward="once", answer="close"),
    "reset": HttpFault(forward="once", answer="reset"),
    "500": HttpFault(forward="once", answer=500, code="InternalError"),
    "503": HttpFault(forward="once", answer=503, code="SlowDown"),
    "504 of a gateway": HttpFault(forward="once", answer=504),
    "hangs": HttpFault(forward="once", answer="hang"),
}
NOT_LANDED = {
    "closed": HttpFault(forward="never", answer="close"),
    "reset": HttpFault(forward="never", answer="reset"),
    "409": HttpFault(forward="never", answer=409, code="ConditionalRequestConflict"),
    "429": HttpFault(forward="never", answer=429, code="TooManyRequests"),
    "500": HttpFault(forward="never", answer=500, code="InternalError"),
    "503": HttpFault(forward="never", answer=503, code="SlowDown"),
    "hangs": HttpFault(forward="never", answer="hang"),
}


class Open(Protocol):
    """Opens the test's lake at an endpoint."""

    def __call__(self, url: str, fault: HttpFault = ..., /) -> S3Store: ...


def patience_s(fault: HttpFault) -> float:
    return IMPATIENT_S if fault.answer == "hang" else PATIENT_S


@pytest.fixture
def direct(lake_uri: str, session: boto3.session.Session) -> Open:
    def open_at(url: str, fault: HttpFault = NO_FAULT, /) -> S3Store:
        settings = S3Settings(
            endpoint_url=url, read_timeout_s=patience_s(fault), read_attempts_max=1
        )
        return S3Store(lake_uri, settings=settings, session=session)

    return open_at


def puts(proxy: FaultProxy) -> list[list[int]]:
    """For each PUT that arrived at the proxy, what the server answered to it."""
    return [seen.upstream_statuses for seen in proxy.seen if seen.method == "PUT"]


@pytest.mark.parametrize("fault", LANDED.values(), ids=LANDED)
class TestALandedWriteWhoseReplyIsLost:
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
            found = store.get("a")
            assert found is not None
            assert found.body == file.read_bytes()

    def test_replace_is_unknown_and_a_second_try_says_changed(
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
            found = store.get("root.json")
            assert found is not None
            assert found.body == b"two"


@pytest.mark.parametrize("fault", NOT_LANDED.values(), ids=NOT_LANDED)
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
    def test_after_its_second_try_was_applied_it_cannot_land(
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
            found = store.get("root.json")
            assert found is not None
            assert (found.body, found.etag) == (b"three", third)

    def test_after_its_second_try_lost_the_race_it_cannot_land(
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
            found = store.get("root.json")
            assert found is not None
            assert found.body == b"theirs"

    def test_until_then_it_can_land_so_a_read_back_proves_nothing(
        self, direct: Open, ministack_url: str
    ) -> None:
        """Why Unknown is resolved by sending again, not by looking: the look says no, and then it lands."""
        etag = applied(direct(ministack_url).create("root.json", b"one"))
        with FaultProxy(ministack_url, [HttpFault(forward="later", answer="close")]) as proxy:
            store = direct(proxy.url)
            assert isinstance(store.replace("root.json", b"two", expected=etag), Unknown)
            found = store.get("root.json")
            assert found is not None
            assert found.body == b"one"
            assert proxy.release() == 200
            found = store.get("root.json")
            assert found is not None
            assert found.body == b"two"


def test_a_gateway_that_tries_again_makes_our_success_look_like_a_loss(
    direct: Open, ministack_url: str
) -> None:
    """What one attempt of ours cannot prevent, and why success is read from the root and never from the answer."""
    etag = applied(direct(ministack_url).create("root.json", b"one"))
    with FaultProxy(ministack_url, [HttpFault(forward="twice")]) as proxy:
        store = direct(proxy.url)
        assert store.replace("root.json", b"two", expected=etag) == NotApplied(because="changed")
        assert puts(proxy) == [[200, 412]]
        found = store.get("root.json")
        assert found is not None
        assert found.body == b"two"


@pytest.mark.parametrize("answer", ["close", "reset"])
def test_a_forward_proxy_that_dies_after_sending_leaves_the_outcome_unknown(
    direct: Open,
    ministack_url: str,
    monkeypatch: pytest.MonkeyPatch,
    answer: Literal["close", "reset"],
) -> None:
    """urllib3 calls this "Unable to connect to proxy", though the request was out: it must not count as never sent."""
    with FaultProxy(ministack_url, [HttpFault(forward="never", answer=answer)]) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "")
        outcome: Outcome = direct(ministack_url).create("a", b"one")
        assert isinstance(outcome, Unknown)
        assert len(proxy.seen) == 1


def test_no_environment_switches_retries_on(
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
    def test_a_read_is_tried_again(
        self, ministack_url: str, lake_uri: str, session: boto3.session.Session
    ) -> None:
        faults = [HttpFault(forward="never", answer=503, code="SlowDown"), HttpFault(answer="cut")]
        with FaultProxy(ministack_url, faults, method="GET") as proxy:
            store = S3Store(lake_uri, settings=S3Settings(endpoint_url=proxy.url), session=session)
            store.create("a", b"0123456789")
            found = store.get("a")
            assert found is not None
            assert found.body == b"0123456789"
            assert [seen.method for seen in proxy.seen] == ["PUT", "GET", "GET", "GET"]


@pytest.mark.parametrize("mode", [None, "legacy", "standard", "adaptive"], ids=str)
@pytest.mark.parametrize(
    "fault",
    [LANDED[name] for name in ("closed", "500", "503", "hangs")],
    ids=lambda f: str(f.answer),
)
def test_boto3_with_its_own_retries_reports_our_landed_put_as_a_lost_race(
    ministack_url: str,
    lake_uri: str,
    session: boto3.session.Session,
    mode: Literal["legacy", "standard", "adaptive"] | None,
    fault: HttpFault,
) -> None:
    with FaultProxy(ministack_url, [fault]) as proxy:
        config = Config(read_timeout=patience_s(fault))
        if mode is not None:
            config = config.merge(Config(retries={"mode": mode}))
        client = session.client("s3", endpoint_url=proxy.url, config=config)
        key = f"{lake_uri.rpartition('/')[2]}/root.json"
        with pytest.raises(ClientError) as raised:
            client.put_object(Bucket="contract", Key=key, Body=b"mine", IfNoneMatch="*")
        answer = raised.value.response["ResponseMetadata"]
        assert (answer["HTTPStatusCode"], answer["RetryAttempts"]) == (412, 1)
        assert puts(proxy) == [[200], [412]]
        assert client.get_object(Bucket="contract", Key=key)["Body"].read() == b"mine"
