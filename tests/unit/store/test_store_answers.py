"""The table of S3 answers and their verdicts, row by row."""

from __future__ import annotations

import ssl

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    MetadataRetrievalError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProxyConnectionError,
    ReadTimeoutError,
    ResponseStreamingError,
    SSLError,
    UnauthorizedSSOTokenError,
)
from botocore.parsers import ResponseParserError

from tallystick.errors import (
    RetryLater,
    SettingsError,
    StoreRefused,
    StoreUnavailable,
    TallystickError,
)
from tallystick.store.answers import TABLE, S3Answer, Verdict, classify, classify_status, explain

ANSWERS = [
    (301, "PermanentRedirect", Verdict.MOVED),
    (307, "TemporaryRedirect", Verdict.MOVED),
    (400, "ExpiredToken", Verdict.DENIED),
    (400, "InvalidToken", Verdict.DENIED),
    (400, "TokenRefreshRequired", Verdict.DENIED),
    (400, "AuthorizationHeaderMalformed", Verdict.MOVED),
    (400, "IllegalLocationConstraintException", Verdict.MOVED),
    (400, "RequestTimeout", Verdict.UNKNOWN),
    (400, "IncompleteBody", Verdict.UNKNOWN),
    (400, "BadDigest", Verdict.UNKNOWN),
    (400, "XAmzContentSHA256Mismatch", Verdict.UNKNOWN),
    (400, "InvalidArgument", Verdict.REFUSED),
    (400, "PreconditionFailed", Verdict.REFUSED),
    (401, "Unauthorized", Verdict.DENIED),
    (402, "", Verdict.REFUSED),
    (403, "RequestTimeTooSkewed", Verdict.CLOCK),
    (403, "AccessDenied", Verdict.DENIED),
    (403, "SignatureDoesNotMatch", Verdict.DENIED),
    (403, "InvalidAccessKeyId", Verdict.DENIED),
    (404, "NoSuchBucket", Verdict.NO_BUCKET),
    (404, "NoSuchKey", Verdict.NO_OBJECT),
    (404, "XAdminUserNotFound", Verdict.DENIED),
    (404, "404", Verdict.UNKNOWN),
    (405, "MethodNotAllowed", Verdict.REFUSED),
    (408, "", Verdict.UNKNOWN),
    (409, "ConditionalRequestConflict", Verdict.UNKNOWN),
    (409, "OperationAborted", Verdict.UNKNOWN),
    (412, "PreconditionFailed", Verdict.PRECONDITION),
    (412, "412", Verdict.PRECONDITION),
    (429, "TooManyRequests", Verdict.UNKNOWN),
    (500, "InternalError", Verdict.UNKNOWN),
    (500, "PreconditionFailed", Verdict.UNKNOWN),
    (500, "NoSuchKey", Verdict.UNKNOWN),
    (501, "NotImplemented", Verdict.NO_CONDITIONS),
    (502, "", Verdict.UNKNOWN),
    (503, "SlowDown", Verdict.UNKNOWN),
    (504, "", Verdict.UNKNOWN),
    (599, "", Verdict.UNKNOWN),
    (0, "", Verdict.UNKNOWN),
    (200, "InternalError", Verdict.UNKNOWN),
]


def refusal(status: int, code: str) -> ClientError:
    return ClientError(
        {
            "Error": {"Code": code, "Message": "text"},
            "ResponseMetadata": {"HTTPStatusCode": status},
        },  # type: ignore[typeddict-item]
        "PutObject",
    )


@pytest.mark.parametrize(("status", "code", "verdict"), ANSWERS)
def test_each_answer_has_its_verdict(status: int, code: str, verdict: Verdict) -> None:
    assert classify(refusal(status, code)).verdict is verdict


def test_every_row_of_the_table_is_covered() -> None:
    covered = {(status, code) for status, code, _ in ANSWERS}
    for row in TABLE:
        codes = row.codes or {code for status, code in covered if status == row.status}
        assert {(row.status, code) for code in codes} <= covered
        assert codes


def test_only_412_and_no_such_key_prove_that_a_write_did_not_apply() -> None:
    proofs = {
        (status, code)
        for status in range(100, 600)
        for code in (
            "",
            "PreconditionFailed",
            "NoSuchKey",
            "ConditionalRequestConflict",
            "SlowDown",
        )
        if classify_status(status, code) in {Verdict.PRECONDITION, Verdict.NO_OBJECT}
    }
    assert {status for status, _ in proofs} == {404, 412}
    assert {code for status, code in proofs if status == 404} == {"NoSuchKey"}


URL = "http://127.0.0.1:9000/lake/root.json"
REFUSED_CERTIFICATE = Exception(ssl.SSLCertVerificationError(1, "certificate verify failed"))


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (EndpointConnectionError(endpoint_url=URL), Verdict.NEVER_SENT),
        (ConnectTimeoutError(endpoint_url=URL), Verdict.NEVER_SENT),
        (ReadTimeoutError(endpoint_url=URL), Verdict.UNKNOWN),
        (ConnectionClosedError(endpoint_url=URL), Verdict.UNKNOWN),
        (ProxyConnectionError(proxy_url=URL), Verdict.UNKNOWN),
        (ResponseStreamingError(error="cut"), Verdict.UNKNOWN),
        (HTTPClientError(error="odd"), Verdict.UNKNOWN),
        (SSLError(endpoint_url=URL, error=REFUSED_CERTIFICATE), Verdict.CERTIFICATE),
        (
            SSLError(endpoint_url=URL, error=Exception("decryption failed or bad record mac")),
            Verdict.UNKNOWN,
        ),
        (NoCredentialsError(), Verdict.NO_CREDENTIALS),
        (
            PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"),
            Verdict.NO_CREDENTIALS,
        ),
        (UnauthorizedSSOTokenError(), Verdict.NO_CREDENTIALS),
        (
            CredentialRetrievalError(provider="custom-process", error_msg="canary"),
            Verdict.CREDENTIALS_LATE,
        ),
        (MetadataRetrievalError(error_msg="timed out"), Verdict.CREDENTIALS_LATE),
        (ParamValidationError(report="odd"), Verdict.REFUSED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.name,
)
def test_each_error_without_an_answer_has_its_verdict(
    error: BotoCoreError, verdict: Verdict
) -> None:
    answer = classify(error)
    assert answer == S3Answer(verdict=verdict, text=type(error).__name__)


def test_an_answer_that_cannot_be_parsed_proves_nothing() -> None:
    assert classify(ResponseParserError("invalid XML")).verdict is Verdict.UNKNOWN


def test_the_text_of_an_answer_is_status_and_code_only() -> None:
    assert classify(refusal(503, "SlowDown")).text == "HTTP 503 SlowDown"
    assert classify(refusal(404, "404")).text == "HTTP 404"
    assert classify(refusal(403, "key AKIA is unknown\n")).text == "HTTP 403 (unprintable code)"


ERRORS: dict[Verdict, type[TallystickError]] = {
    Verdict.PRECONDITION: StoreUnavailable,
    Verdict.NO_OBJECT: StoreUnavailable,
    Verdict.UNKNOWN: StoreUnavailable,
    Verdict.NEVER_SENT: StoreUnavailable,
    Verdict.CREDENTIALS_LATE: StoreUnavailable,
    Verdict.NO_BUCKET: SettingsError,
    Verdict.DENIED: SettingsError,
    Verdict.CLOCK: SettingsError,
    Verdict.MOVED: SettingsError,
    Verdict.REFUSED: SettingsError,
    Verdict.NO_CREDENTIALS: SettingsError,
    Verdict.CERTIFICATE: SettingsError,
    Verdict.NO_CONDITIONS: StoreRefused,
}


@pytest.mark.parametrize("verdict", Verdict)
def test_each_verdict_has_an_error_with_the_address_and_a_hint(verdict: Verdict) -> None:
    answer = S3Answer(verdict=verdict, text="HTTP 999 Odd")
    error = explain(answer, action="read 'a'", bucket="lake", endpoint_url="http://127.0.0.1:9000")
    assert type(error) is ERRORS[verdict]
    assert isinstance(error, RetryLater) == (ERRORS[verdict] is StoreUnavailable)
    assert "http://127.0.0.1:9000" in error.message
    assert "read 'a'" in error.message
    assert "{" not in str(error)
    assert error.hint
