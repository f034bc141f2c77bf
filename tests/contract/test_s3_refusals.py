"""The errors of S3Store: they name bucket, endpoint and setting, and contain no secret."""

from __future__ import annotations

import hashlib
import itertools
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
import pytest
from botocore.stub import Stubber

from tallystick.errors import (
    SettingsError,
    StoreRefused,
    StoreUnavailable,
    TallystickError,
)
from tallystick.store import ETag, NotApplied, Unknown
from tallystick.store.s3 import S3Settings, S3Store
from tallystick_devstack.testing.fault_proxy import FaultProxy, HttpFault
from tallystick_devstack.testing.servers import free_port

ETAG = ETag('"0"')
Call = Callable[[S3Store], object]
CALLS: dict[str, Call] = {
    "get": lambda store: store.get("a"),
    "list": lambda store: [*store.list("a")],
    "delete": lambda store: store.delete(["a"]),
    "create": lambda store: store.create("a", b"x"),
    "replace": lambda store: store.replace("a", b"x", expected=ETAG),
}
each_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


def open_at(
    url: str, session: boto3.session.Session, bucket: str = "contract", owner: str | None = None
) -> S3Store:
    settings = S3Settings(
        endpoint_url=url,
        connect_timeout_s=2,
        read_timeout_s=2,
        read_attempts_max=1,
        bucket_owner=owner,
    )
    return S3Store(f"s3://{bucket}/refusals", settings=settings, session=session)


@each_call
def test_a_refused_connection_names_the_endpoint_and_its_setting(
    session: boto3.session.Session, call: Call
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(StoreUnavailable) as raised:
        call(open_at(url, session))
    assert url in str(raised.value)
    assert "AWS_ENDPOINT_URL_S3" in raised.value.hint


@each_call
def test_an_unknown_host_names_the_endpoint_and_its_setting(
    session: boto3.session.Session, call: Call
) -> None:
    with pytest.raises(
        StoreUnavailable, match=r"http://tallystick\.invalid:9000.*AWS_ENDPOINT_URL_S3"
    ):
        call(open_at("http://tallystick.invalid:9000", session))


@each_call
def test_a_missing_bucket_is_named(
    ministack_url: str, session: boto3.session.Session, call: Call
) -> None:
    with pytest.raises(
        SettingsError, match=r"bucket 'not-there' at http.* does not exist.*create the bucket"
    ):
        call(open_at(ministack_url, session, bucket="not-there"))


@each_call
@pytest.mark.parametrize(
    ("refusal", "error", "message"),
    [
        ((403, "AccessDenied"), SettingsError, "HTTP 403 AccessDenied.*AWS_ACCESS_KEY_ID"),
        (
            (403, "SignatureDoesNotMatch"),
            SettingsError,
            "SignatureDoesNotMatch.*AWS_SECRET_ACCESS_KEY",
        ),
        ((403, "RequestTimeTooSkewed"), SettingsError, "clock.*NTP"),
        ((401, "Unauthorized"), SettingsError, "HTTP 401 Unauthorized.*AWS_ACCESS_KEY_ID"),
        ((400, "ExpiredToken"), SettingsError, "ExpiredToken.*AWS_SESSION_TOKEN"),
        ((400, "InvalidRequest"), SettingsError, "HTTP 400 InvalidRequest.*AWS_ENDPOINT_URL_S3"),
        ((405, "MethodNotAllowed"), SettingsError, "HTTP 405 MethodNotAllowed"),
        ((501, "NotImplemented"), StoreRefused, "does not implement.*If-Match and If-None-Match"),
    ],
)
def test_a_refusal_is_an_error_that_names_bucket_endpoint_and_setting(
    *,
    ministack_url: str,
    session: boto3.session.Session,
    call: Call,
    refusal: tuple[int, str],
    error: type[TallystickError],
    message: str,
) -> None:
    fault = HttpFault(forward="never", answer=refusal[0], code=refusal[1])
    with refusing(ministack_url, fault) as url, pytest.raises(error, match=message) as raised:
        call(open_at(url, session))
    assert url in raised.value.message
    assert "'contract'" in raised.value.message


@each_call
@pytest.mark.parametrize(
    ("status", "code"), [(500, "InternalError"), (503, "SlowDown"), (429, ""), (404, "")]
)
def test_a_reply_that_proves_nothing_is_unknown_for_writes_and_unavailable_for_reads(
    ministack_url: str, session: boto3.session.Session, call: Call, status: int, code: str
) -> None:
    with refusing(ministack_url, HttpFault(forward="never", answer=status, code=code)) as url:
        store = open_at(url, session)
        if call in (CALLS["create"], CALLS["replace"]):
            assert call(store) == Unknown(because=f"HTTP {status} {code}".strip())
        else:
            with pytest.raises(StoreUnavailable, match=f"HTTP {status}.*AWS_ENDPOINT_URL_S3"):
                call(store)


def test_a_replace_of_an_absent_object_is_missing_or_changed_as_the_server_replies(
    ministack_url: str, session: boto3.session.Session
) -> None:
    assert CALLS["replace"](open_at(ministack_url, session)) == NotApplied(because="missing")
    fault = HttpFault(forward="never", answer=412, code="PreconditionFailed")
    with refusing(ministack_url, fault) as url:
        assert CALLS["replace"](open_at(url, session)) == NotApplied(because="changed")


def test_objects_that_could_not_be_deleted_are_an_error(session: boto3.session.Session) -> None:
    store = open_at("http://127.0.0.1:9", session)
    for code, error in (("AccessDenied", SettingsError), ("InternalError", StoreUnavailable)):
        with Stubber(store._reader) as stub:
            stub.add_response("delete_objects", {"Errors": [{"Key": "refusals/a", "Code": code}]})
            with pytest.raises(
                error,
                match=f"delete 2 objects, the first of them 'refusals/a' .{code} for 1 of them",
            ):
                store.delete(["a", "b"])


def test_missing_credentials_are_named_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{free_port()}")
    store = S3Store("s3://contract/refusals")
    for call in CALLS.values():
        with pytest.raises(
            SettingsError, match=r"no usable credentials for bucket 'contract'.*AWS_ACCESS_KEY_ID"
        ):
            call(store)


@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        ("AWS_PROFILE", "no-such-profile", "no-such-profile.*AWS_PROFILE"),
        ("AWS_ENDPOINT_URL_S3", "no url at all", "the endpoint is not a URL.*AWS_ENDPOINT_URL_S3"),
    ],
)
def test_unusable_settings_are_named(
    on_ministack: str, monkeypatch: pytest.MonkeyPatch, name: str, setting: str, message: str
) -> None:
    del on_ministack
    monkeypatch.setenv(name, setting)
    with pytest.raises(SettingsError, match=message):
        S3Store("s3://contract/refusals")


def test_no_message_and_no_traceback_contains_a_secret(
    on_ministack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    canaries = {
        "AWS_ACCESS_KEY_ID": "CANARYID",
        "AWS_SECRET_ACCESS_KEY": "canary-secret",
        "AWS_SESSION_TOKEN": "canary-token",
    }
    for name, value in canaries.items():
        monkeypatch.setenv(name, value)
    texts: list[str] = []
    for fault in (
        HttpFault(forward="never", answer=403, code="InvalidAccessKeyId"),
        HttpFault(forward="never", answer=403, code="canary-secret is wrong"),
        HttpFault(forward="never", answer=400, code="InvalidRequest"),
        HttpFault(forward="never", answer="close"),
    ):
        with refusing(on_ministack, fault) as url:
            monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
            store = S3Store("s3://contract/refusals", settings=S3Settings(read_attempts_max=1))
            texts.append(repr(store))
            for call in CALLS.values():
                try:
                    texts.append(repr(call(store)))
                except TallystickError as error:
                    texts += [str(error), "".join(traceback.format_exception(error))]
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://user:canary-password@127.0.0.1:9")
    with pytest.raises(SettingsError, match="expected no user name or password") as raised:
        S3Store("s3://contract/refusals")
    texts += [str(raised.value), "".join(traceback.format_exception(raised.value))]
    assert len(texts) > 20
    assert [text for text in texts if "canary" in text.lower()] == []


class TestRequests:
    def test_one_put_by_path_style_with_the_bodys_hash_signed(
        self, ministack_url: str, session: boto3.session.Session, tmp_path: Path
    ) -> None:
        body = b"p" * (9 * 1024 * 1024)  # above boto3's own threshold for multipart uploads
        file = tmp_path / "part"
        file.write_bytes(body)
        with FaultProxy(ministack_url) as proxy:
            store = open_at(proxy.url, session, owner="000000000000")
            store.create("path", file)
            store.create("bytes", body)
            store.delete(["path", "bytes"])
        first, second, _ = proxy.seen
        for request, key in ((first, "path"), (second, "bytes")):
            headers = {name.lower(): value for name, value in request.headers.items()}
            assert (request.method, request.path, len(request.body)) == (
                "PUT",
                f"/contract/refusals/{key}",
                len(body),
            )
            assert headers["if-none-match"] == "*"
            assert headers["x-amz-content-sha256"] == hashlib.sha256(body).hexdigest()
            assert headers["x-amz-expected-bucket-owner"] == "000000000000"
            assert [name for name in headers if "checksum" in name or "trailer" in name] == []

    def test_a_custom_endpoint_without_a_region_is_signed_for_us_east_1(
        self, on_ministack: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("AWS_DEFAULT_REGION")
        with FaultProxy(on_ministack) as proxy:
            monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.url)
            assert S3Store("s3://contract/refusals").get("absent") is None
        assert "/us-east-1/s3/" in proxy.seen[0].headers["Authorization"]


@contextmanager
def refusing(upstream_url: str, fault: HttpFault) -> Iterator[str]:
    """Yield the URL of a proxy that applies the fault to every request, of any method."""
    with FaultProxy(upstream_url, itertools.repeat(fault), method=None) as proxy:
        yield proxy.url
