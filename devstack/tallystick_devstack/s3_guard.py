"""Runs the embedded S3 server with a check of its keys: python -m tallystick_devstack.s3_guard.

ministack accepts any key, does not check the signature in a header, and allows the pages of every origin (CORS: *). With
this check, a request reaches it only if it is signed (AWS Signature Version 4, in the Authorization header or in a
presigned URL) with the keys in the environment of this process. No response has a CORS header, so no page in a browser
can read one.

Airflow's pages link to objects, and a browser does not sign its requests. If a user opens such a page, the browser asks
for the same two keys as user and password (HTTP Basic). This allows reading only.

The check covers everything in a signature: method, path, query, signed headers and time. The body is not hashed again:
its hash is in a signed header, and on the loopback interface only root could replace the body.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote_from_bytes, unquote_to_bytes

ALGORITHM = "AWS4-HMAC-SHA256"
SKEW = timedelta(minutes=15)  # the limit of AWS
_AUTHORIZATION = re.compile(
    rf"{ALGORITHM}\s+Credential=(?P<credential>[^,\s]+),\s*SignedHeaders=(?P<signed>[^,\s]+),\s*"
    r"Signature=(?P<signature>[0-9a-f]{64})"
)
_TIME = "%Y%m%dT%H%M%SZ"
_SECONDS = re.compile(r"[0-9]{1,6}")
_NO_CORS = b"access-control-"

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """The only pair of keys that is accepted."""

    access_key: str
    secret_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The parts of a request that a signature covers. `path` and `query` are as sent, header names in lower case."""

    method: str
    path: bytes
    query: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """The signature of a request and its inputs. It is valid for `lifetime` after `time`."""

    credential: str
    signed: str
    signature: str
    time: str
    lifetime: timedelta
    payload: str
    query: tuple[tuple[str, str], ...]


def refusal(request: Request, login: Login, now: datetime) -> tuple[str, str] | None:
    """Return S3's error code and a message if the request was not signed with these keys, None if it was."""
    claim = _claim(request)
    if claim is None:
        return "AccessDenied", "The request is not signed with AWS Signature Version 4."
    access_key, _, scope = claim.credential.partition("/")
    if not hmac.compare_digest(access_key.encode(), login.access_key.encode()):
        return "InvalidAccessKeyId", "The access key is not the key of this stack."
    parts = scope.split("/")
    if len(parts) != 4 or parts[2:] != ["s3", "aws4_request"] or parts[0] != claim.time[:8]:
        return "AccessDenied", "The credential is not for date/region/s3/aws4_request."
    try:
        signed_at = datetime.strptime(claim.time, _TIME).replace(tzinfo=UTC)
    except ValueError:
        return "AccessDenied", "The request has no valid time of its signature."
    if not -SKEW <= now - signed_at <= claim.lifetime:
        return (
            "RequestTimeTooSkewed",
            f"Signed at {claim.time}; the server's time is {now:{_TIME}}.",
        )
    text = f"{ALGORITHM}\n{claim.time}\n{scope}\n{_sha256(_canonical(request, claim))}"
    key = f"AWS4{login.secret_key}".encode()
    for part in parts:
        key = _hmac(key, part)
    if not hmac.compare_digest(_hmac(key, text).hex(), claim.signature):
        return "SignatureDoesNotMatch", "The signature was not made with this stack's secret key."
    return None


def _claim(request: Request) -> _Claim | None:
    query = _query(request.query)
    header = _AUTHORIZATION.fullmatch(request.headers.get("authorization", ""))
    if header is not None:
        return _Claim(
            **header.groupdict(),
            time=request.headers.get("x-amz-date", ""),
            lifetime=SKEW,
            payload=request.headers.get("x-amz-content-sha256", ""),
            query=query,
        )
    parameters = dict(query)
    if parameters.get("X-Amz-Algorithm") != ALGORITHM or not _SECONDS.fullmatch(
        parameters.get("X-Amz-Expires", "")
    ):
        return None
    return _Claim(
        credential=unquote_to_bytes(parameters.get("X-Amz-Credential", "")).decode(
            errors="replace"
        ),
        signed=unquote_to_bytes(parameters.get("X-Amz-SignedHeaders", "")).decode(errors="replace"),
        signature=parameters.get("X-Amz-Signature", ""),
        time=parameters.get("X-Amz-Date", ""),
        lifetime=timedelta(seconds=min(int(parameters["X-Amz-Expires"]), 604_800)),
        payload=request.headers.get("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
        query=tuple(pair for pair in query if pair[0] != "X-Amz-Signature"),
    )


def _canonical(request: Request, claim: _Claim) -> str:
    """Return the canonical request of AWS Signature Version 4."""
    names = claim.signed.split(";")
    if "host" not in names:
        names = []  # such a signature would be valid for any server: without the headers, the comparison fails
    return "\n".join(
        [
            request.method,
            _encoded(request.path, safe="/"),
            "&".join(f"{name}={value}" for name, value in sorted(claim.query)),
            *(f"{name}:{' '.join(request.headers.get(name, '').split())}" for name in names),
            "",
            claim.signed,
            claim.payload,
        ]
    )


def _query(raw: bytes) -> tuple[tuple[str, str], ...]:
    """Split a query into pairs of name and value, each encoded as AWS encodes them."""
    pairs = (part.partition(b"=") for part in raw.split(b"&") if part)
    return tuple((_encoded(name, safe=""), _encoded(value, safe="")) for name, _, value in pairs)


def _encoded(raw: bytes, *, safe: str) -> str:
    return quote_from_bytes(unquote_to_bytes(raw), safe=safe)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def guarded(app: App, login: Login) -> App:
    """Return the app with the check: a request without a valid signature is refused, no response has a CORS header."""

    async def checked(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await app(scope, receive, send)
            return
        if scope["type"] != "http":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        request = _request(scope)
        if reads_as_a_person(request, login):
            kept = [pair for pair in scope["headers"] if pair[0].lower() != b"authorization"]
            scope = {**scope, "headers": kept}
        elif (refused := refusal(request, login, datetime.now(UTC))) is not None:
            await _refuse(send, *refused, login_prompt=may_be_a_person(request))
            return

        async def without_cors(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [
                    (name, value)
                    for name, value in message.get("headers", ())
                    if not bytes(name).lower().startswith(_NO_CORS)
                ]
                message = {**message, "headers": kept}
            await send(message)

        await app(scope, in_one_part(receive), without_cors)

    return checked


def in_one_part(receive: Receive) -> Receive:
    """Return a `receive` that returns the whole body of a request in one message.

    ministack appends each part to the bytes before it, which takes time with the square of the size: 9 s for 45 MB.
    """

    async def whole() -> Message:
        parts: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return message
            parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                return {**message, "body": b"".join(parts), "more_body": False}

    return whole


def reads_as_a_person(request: Request, login: Login) -> bool:
    """Return True if the request reads with the keys as user and password, as a browser sends them."""
    words = f"{login.access_key}:{login.secret_key}".encode()
    right = f"Basic {base64.b64encode(words).decode()}"
    given = request.headers.get("authorization", "")
    return request.method in ("GET", "HEAD") and hmac.compare_digest(given.encode(), right.encode())


def may_be_a_person(request: Request) -> bool:
    """Return True if a browser opens a page, so that it can ask its user for the keys."""
    given = request.headers.get("authorization", "Basic ")
    page = "text/html" in request.headers.get("accept", "")
    return request.method == "GET" and page and given.startswith("Basic ")


def _request(scope: Message) -> Request:
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("utf-8", "replace")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return Request(
        method=scope["method"],
        path=scope["raw_path"],
        query=scope["query_string"],
        headers=headers,
    )


async def _refuse(send: Send, code: str, message: str, *, login_prompt: bool) -> None:
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    ).encode()
    headers = [(b"content-type", b"application/xml"), (b"content-length", b"%d" % len(body))]
    if login_prompt:
        headers.append((b"www-authenticate", b'Basic realm="the local stack\'s S3 keys"'))
    status = 401 if login_prompt else 403
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main() -> None:
    """Run ministack with the check, with the keys in the environment."""
    from ministack import app as server

    login = Login(
        access_key=os.environ["AWS_ACCESS_KEY_ID"], secret_key=os.environ["AWS_SECRET_ACCESS_KEY"]
    )
    server.app = guarded(server.app, login)
    server.main()


if __name__ == "__main__":
    main()
