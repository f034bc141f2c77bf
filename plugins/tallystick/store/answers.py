"""Maps each response of S3, and each failure without one, to a verdict: what it proves about the request.

A write counts as not landed only if that is proven. A 412 proves it, and so does a 404 with the code NoSuchKey, and a
connection that was never made. 409, 429, 5xx, timeouts and resets prove nothing.
Sources: S3 API Reference, "Error responses"; S3 User Guide, "How to prevent object overwrites with conditional writes".
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    LoginError,
    MetadataRetrievalError,
    NoAuthTokenError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    RefreshWithMFAUnsupportedError,
    SSLError,
    SSOError,
    TokenRetrievalError,
)

from tallystick.errors import SettingsError, StoreRefused, StoreUnavailable, TallystickError

ENDPOINT_SETTING = "AWS_ENDPOINT_URL_S3"
_CREDENTIALS_SETTING = (
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (with AWS_SESSION_TOKEN), or AWS_PROFILE"
)


class Verdict(Enum):
    """The meaning of one response, or failure, for its request."""

    PRECONDITION = auto()  # the condition was false: the write did not land and never will
    NO_OBJECT = auto()  # the object does not exist: a replace did not land
    UNKNOWN = auto()  # proves nothing about a write; a read may be tried again
    NEVER_SENT = auto()  # no connection was made, so no byte of the request was sent
    NO_BUCKET = auto()
    DENIED = auto()
    CLOCK = auto()
    MOVED = auto()  # wrong region or endpoint
    NO_CONDITIONS = auto()  # the server does not implement the request
    REFUSED = auto()  # any other 4xx: a retry cannot help
    NO_CREDENTIALS = auto()
    CREDENTIALS_LATE = auto()  # the source of the credentials did not respond
    CERTIFICATE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the table: a status, its error codes (None means all other codes), and the verdict."""

    status: int
    codes: frozenset[str] | None
    verdict: Verdict


def _row(status: int, verdict: Verdict, *codes: str) -> Row:
    return Row(status=status, codes=frozenset(codes) or None, verdict=verdict)


# The first match wins. A code counts only together with its status: one server sent PreconditionFailed with a 500
# (moto#10018), and a 500 proves nothing, regardless of its code.
TABLE: tuple[Row, ...] = (
    _row(301, Verdict.MOVED),
    _row(307, Verdict.MOVED),
    _row(400, Verdict.DENIED, "ExpiredToken", "InvalidToken", "TokenRefreshRequired"),
    _row(400, Verdict.MOVED, "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"),
    # The body did not arrive whole. S3 sends these as 400, and a retry succeeds.
    _row(
        400,
        Verdict.UNKNOWN,
        "RequestTimeout",
        "IncompleteBody",
        "BadDigest",
        "XAmzContentSHA256Mismatch",
    ),
    _row(400, Verdict.REFUSED),
    _row(401, Verdict.DENIED),
    _row(403, Verdict.CLOCK, "RequestTimeTooSkewed"),
    _row(403, Verdict.DENIED),
    _row(404, Verdict.NO_BUCKET, "NoSuchBucket"),
    _row(404, Verdict.NO_OBJECT, "NoSuchKey"),
    # versitygw 1.8.0 sends this for an unknown access key id. AWS sends 403 InvalidAccessKeyId.
    _row(404, Verdict.DENIED, "XAdminUserNotFound"),
    # A 404 without a known S3 code may come from a proxy. If it counted as "no object", the root would seem to be gone.
    _row(404, Verdict.UNKNOWN),
    _row(405, Verdict.REFUSED),
    _row(408, Verdict.UNKNOWN),
    # ConditionalRequestConflict, OperationAborted: another write was in progress. It is not known which one won.
    _row(409, Verdict.UNKNOWN),
    _row(412, Verdict.PRECONDITION),
    _row(429, Verdict.UNKNOWN),
    _row(501, Verdict.NO_CONDITIONS),
)


def classify_status(status: int, code: str) -> Verdict:
    """Return the verdict of an HTTP status and S3's error code.

    A pair that is not in the table is REFUSED if the status is a 4xx, else UNKNOWN.
    """
    for row in TABLE:
        if row.status == status and (row.codes is None or code in row.codes):
            return row.verdict
    return Verdict.REFUSED if 400 <= status < 500 else Verdict.UNKNOWN


def classify_failure(error: BotoCoreError) -> Verdict:
    """Return the verdict of a failure without a response.

    `NEVER_SENT` is only for errors that urllib3 raises before it has a connection. ProxyConnectionError is not one of
    them: urllib3 also raises it if a connection through a proxy breaks after the request was sent (`urlopen` checks
    `has_connected_to_proxy` when http.client has closed the connection already).
    """
    match error:
        case EndpointConnectionError() | ConnectTimeoutError():
            return Verdict.NEVER_SENT
        case SSLError() if _is_certificate_refusal(error):
            return Verdict.CERTIFICATE
        case CredentialRetrievalError() | MetadataRetrievalError():
            return Verdict.CREDENTIALS_LATE
        case (
            NoCredentialsError()
            | PartialCredentialsError()
            | NoAuthTokenError()
            | TokenRetrievalError()
            | SSOError()
            | LoginError()
            | RefreshWithMFAUnsupportedError()
        ):
            return Verdict.NO_CREDENTIALS
        case ParamValidationError():
            return Verdict.REFUSED
        case _:
            return Verdict.UNKNOWN


def _is_certificate_refusal(error: SSLError) -> bool:
    # A client checks the server's certificate only in the TLS handshake, so nothing is sent yet.
    cause = error.kwargs.get("error")
    return isinstance(cause, Exception) and any(
        isinstance(arg, ssl.SSLCertVerificationError) for arg in cause.args
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Answer:
    """The verdict of a failed request, and its text for a message. `text` contains no key, secret or URL."""

    verdict: Verdict
    text: str


def classify(error: Exception) -> S3Answer:
    """Return the verdict and text of a failed boto3 call. Any failure without a clear meaning is UNKNOWN."""
    match error:
        case ClientError():
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            code = _plain(error.response.get("Error", {}).get("Code", ""))
            text = f"HTTP {status}" if code in {"", str(status)} else f"HTTP {status} {code}"
            return S3Answer(verdict=classify_status(status, code), text=text)
        case BotoCoreError():
            return S3Answer(verdict=classify_failure(error), text=type(error).__name__)
        case _:
            return S3Answer(verdict=Verdict.UNKNOWN, text=type(error).__name__)


def _plain(code: str) -> str:
    # The code comes from the server. It must not put arbitrary text into the logs.
    return code if re.fullmatch(r"[A-Za-z0-9.]{0,64}", code) else "(unprintable code)"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wording:
    """The error of a verdict. `message` may contain {action}, {place}, {endpoint} and {text}."""

    error: Callable[..., TallystickError]
    message: str
    hint: str


_RETRY = _Wording(
    error=StoreUnavailable,
    message="{place} did not {action} ({text}).",
    hint=f"try again; if it persists, check the server and {ENDPOINT_SETTING}.",
)
_WORDING: dict[Verdict, _Wording] = {
    Verdict.UNKNOWN: _RETRY,
    Verdict.PRECONDITION: _RETRY,
    Verdict.NO_OBJECT: _RETRY,
    Verdict.NEVER_SENT: _Wording(
        error=StoreUnavailable,
        message="cannot connect to the object store at {endpoint} to {action} ({text}).",
        hint=f"check that the server runs, is reachable from this machine and is the one in {ENDPOINT_SETTING}.",
    ),
    Verdict.NO_BUCKET: _Wording(
        error=SettingsError,
        message="{place} does not exist: could not {action}.",
        hint=f"create the bucket or correct `warehouse`; if it is on another server, set {ENDPOINT_SETTING}.",
    ),
    Verdict.DENIED: _Wording(
        error=SettingsError,
        message="{place} refused to {action} ({text}).",
        hint=f"check {_CREDENTIALS_SETTING}: wrong, expired, or without s3:GetObject, s3:PutObject and "
        "s3:ListBucket on this prefix (without s3:ListBucket S3 answers 403 for an object that does not exist).",
    ),
    Verdict.CLOCK: _Wording(
        error=SettingsError,
        message="{place} refused to {action}: this machine's clock is too far from the server's ({text}).",
        hint="set the clock of this machine (NTP).",
    ),
    Verdict.MOVED: _Wording(
        error=SettingsError,
        message="{place} is not served there: could not {action} ({text}).",
        hint=f"set AWS_DEFAULT_REGION to the bucket's region, or correct {ENDPOINT_SETTING}.",
    ),
    Verdict.NO_CONDITIONS: _Wording(
        error=StoreRefused,
        message="{place} does not implement what is needed to {action} ({text}).",
        hint="use a store with conditional writes (If-Match and If-None-Match on PutObject).",
    ),
    Verdict.NO_CREDENTIALS: _Wording(
        error=SettingsError,
        message="no usable credentials for {place}: could not {action} ({text}).",
        hint=f"set {_CREDENTIALS_SETTING}, or give this machine a role.",
    ),
    Verdict.CREDENTIALS_LATE: _Wording(
        error=StoreUnavailable,
        message="the source of the credentials for {place} did not answer: could not {action} ({text}).",
        hint="try again; if it persists, check the machine's role or its credential_process.",
    ),
    Verdict.CERTIFICATE: _Wording(
        error=SettingsError,
        message="the certificate of {endpoint} is not trusted: could not {action}.",
        hint=f"set AWS_CA_BUNDLE to the authority that signed it, or correct {ENDPOINT_SETTING}.",
    ),
    Verdict.REFUSED: _Wording(
        error=SettingsError,
        message="{place} refused the request to {action} ({text}).",
        hint=f"check that {ENDPOINT_SETTING} names an S3 server, and the bucket's settings.",
    ),
}


def explain(answer: S3Answer, *, action: str, bucket: str, endpoint_url: str) -> TallystickError:
    """Build the error for a failed request: the bucket, the response, and in the hint the setting to check."""
    wording = _WORDING[answer.verdict]
    place = f"bucket {bucket!r} at {endpoint_url}"
    message = wording.message.format(
        action=action, place=place, endpoint=endpoint_url, text=answer.text
    )
    return wording.error(message, hint=wording.hint)
