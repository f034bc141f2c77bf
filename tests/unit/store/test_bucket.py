"""Settings of a bucket: what is not set, denied or unknown to the server, and the clocks of an answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from tallystick.errors import SettingsError, StoreUnavailable
from tallystick.store.bucket import BucketAnswer, Missing, S3Bucket
from tallystick.store.s3 import S3Settings

AT = datetime(2024, 5, 1, 12, tzinfo=UTC)
DATE = "Wed, 01 May 2024 12:00:00 GMT"


def refused(status: int, code: str, date: str | None = None) -> ClientError:
    headers = {} if date is None else {"date": date}
    response: Any = {
        "Error": {"Code": code, "Message": "m"},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers},
    }
    return ClientError(response, "Op")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> S3Bucket:
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    settings = S3Settings(bucket_owner="123456789012", encryption="AES256")
    return S3Bucket("s3://lake/flights", settings=settings)


def answers(
    bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch, request: str, reply: Any
) -> list[dict[str, Any]]:
    """Let a request return `reply`, or raise it; the value is the list of the calls."""
    calls: list[dict[str, Any]] = []

    def call(**options: Any) -> Any:
        calls.append(options)
        if isinstance(reply, Exception):
            raise reply
        return reply

    monkeypatch.setattr(bucket._reader, request, call)
    return calls


@pytest.mark.parametrize(
    ("error", "missing"),
    [
        (refused(404, "NoSuchLifecycleConfiguration"), "not set"),
        (refused(404, "NoSuchPublicAccessBlockConfiguration"), "not set"),
        (refused(404, "ServerSideEncryptionConfigurationNotFoundError"), "not set"),
        (refused(403, "AccessDenied"), "denied"),
        (refused(401, "Unauthorized"), "denied"),
        (refused(501, "NotImplemented"), "not implemented"),
        (refused(405, "MethodNotAllowed"), "not implemented"),
        (refused(404, "NoSuchKey"), "not implemented"),
        (refused(400, "NotImplemented"), "not implemented"),
    ],
)
def test_a_refusal_of_a_setting_is_an_answer(
    error: ClientError, missing: Missing, bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = answers(bucket, monkeypatch, "get_bucket_versioning", error)
    assert bucket.setting("get_bucket_versioning") == BucketAnswer(body={}, missing=missing)
    assert calls == [{"Bucket": "lake", "ExpectedBucketOwner": "123456789012"}]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (refused(500, "InternalError"), StoreUnavailable),
        (refused(400, "AuthorizationHeaderMalformed"), SettingsError),
        (refused(400, "InvalidRequest"), SettingsError),
        (EndpointConnectionError(endpoint_url="http://s3"), StoreUnavailable),
    ],
)
def test_a_server_that_does_not_answer_the_question_is_an_error(
    error: Exception,
    kind: type[Exception],
    bucket: S3Bucket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers(bucket, monkeypatch, "get_bucket_versioning", error)
    with pytest.raises(kind):
        bucket.setting("get_bucket_versioning")


def test_a_setting_is_the_body_of_the_answer(
    bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(bucket, monkeypatch, "get_bucket_versioning", {"Status": "Enabled"})
    assert bucket.setting("get_bucket_versioning").body == {"Status": "Enabled"}


def clock(*seconds: float) -> Callable[[], datetime]:
    times = iter(AT + timedelta(seconds=s) for s in seconds)
    return lambda: next(times)


@pytest.mark.parametrize(
    ("seconds", "ahead_s"), [((0, 1), 0), ((60, 61), 60), ((-30, -20), -25.5), ((0, 0), -0.5)]
)
def test_the_clocks_are_compared_in_the_middle_of_the_request(
    seconds: tuple[float, float],
    ahead_s: float,
    bucket: S3Bucket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reply = {"ResponseMetadata": {"HTTPHeaders": {"date": DATE}}}
    calls = answers(bucket, monkeypatch, "list_objects_v2", reply)
    found = bucket.time(clock(*seconds))
    assert found is not None
    assert (found.server, found.ahead_s) == (AT, ahead_s)
    assert calls[0]["Prefix"] == "flights/"
    assert calls[0]["MaxKeys"] == 1


@pytest.mark.parametrize("date", [None, "yesterday"])
def test_without_a_date_there_are_no_clocks(
    date: str | None, bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = {} if date is None else {"date": date}
    answers(bucket, monkeypatch, "list_objects_v2", {"ResponseMetadata": {"HTTPHeaders": headers}})
    assert bucket.time(clock(0, 0)) is None


def test_if_the_server_refuses_the_clock_the_clocks_are_known(
    bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(bucket, monkeypatch, "list_objects_v2", refused(403, "RequestTimeTooSkewed", DATE))
    found = bucket.time(clock(1000, 1000))
    assert found is not None
    assert found.ahead_s == 999.5


@pytest.mark.parametrize(
    "error", [refused(403, "RequestTimeTooSkewed"), refused(403, "AccessDenied", DATE)]
)
def test_another_refusal_is_an_error(
    error: ClientError, bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(bucket, monkeypatch, "list_objects_v2", error)
    with pytest.raises(SettingsError):
        bucket.time(clock(0, 0))


def test_the_settings_of_this_machine(bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (bucket.bucket, bucket.prefix) == ("lake", "flights")
    assert (bucket.region, bucket.owner, bucket.encryption) == (
        "eu-central-1",
        "123456789012",
        "AES256",
    )
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert S3Bucket("s3://lake/flights", settings=S3Settings()).credentials() == "env"
