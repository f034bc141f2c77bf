"""The embedded S3 accepts only clients with its key: no other user of the machine, and no page in a browser."""

from __future__ import annotations

import asyncio
import base64
import http.client
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import boto3
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from tallystick_devstack.s3 import ACCESS_KEY, S3Server
from tallystick_devstack.s3_guard import Login, Request, in_one_part, refusal

LOGIN = Login(access_key="key", secret_key="secret")
NAME = "a b/ü+=&~!*'()x.json"
TEMPORARY = Credentials("key", "secret")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    started = S3Server(tmp_path_factory.mktemp("s3"))
    started.start()
    try:
        started.create_bucket("lake")
        started.client().put_object(Bucket="lake", Key=NAME, Body=b"{}", Metadata={"x": "a  b"})
        yield started
    finally:
        started.stop()


def now() -> datetime:
    """Return the time that botocore signs with: a run of the suite is longer than a signature is valid."""
    return datetime.now(UTC)


def signed(
    url: str = "http://127.0.0.1:9/lake/a%20b?list-type=2&prefix=x%2By",
    *,
    presigned: bool = False,
    method: str = "GET",
) -> Request:
    """Return a request that botocore signed."""
    request = AWSRequest(method, url, headers={"X-Amz-Content-Sha256": "UNSIGNED-PAYLOAD"})
    signer = S3SigV4QueryAuth if presigned else S3SigV4Auth
    signer(TEMPORARY, "s3", "us-east-1").add_auth(request)
    parts = urlsplit(request.url)
    headers = {name.lower(): value for name, value in request.headers.items()}
    return Request(
        method=method,
        path=parts.path.encode(),
        query=parts.query.encode(),
        headers=headers | {"host": parts.netloc},
    )


def changed(request: Request, **fields: Any) -> Request:
    words = {n: getattr(request, n) for n in ("method", "path", "query", "headers")}
    return Request(**words | fields)


def without(request: Request, header: str) -> Request:
    return changed(request, headers={n: v for n, v in request.headers.items() if n != header})


def with_header(request: Request, name: str, old: str, new: str) -> Request:
    assert old in request.headers[name]
    return changed(
        request, headers={**request.headers, name: request.headers[name].replace(old, new)}
    )


@pytest.mark.parametrize("presigned", [False, True])
def test_a_request_that_botocore_signs_is_accepted(presigned: bool) -> None:
    assert refusal(signed(presigned=presigned), LOGIN, now()) is None


# If one of these is accepted, a part of the check is missing.
FORGED: dict[str, tuple[Callable[[Request], Request], str]] = {
    "not signed": (lambda r: without(r, "authorization"), "AccessDenied"),
    "another method": (lambda r: changed(r, method="DELETE"), "SignatureDoesNotMatch"),
    "another path": (lambda r: changed(r, path=b"/lake/b"), "SignatureDoesNotMatch"),
    "another query": (lambda r: changed(r, query=b"list-type=2"), "SignatureDoesNotMatch"),
    "another host": (lambda r: with_header(r, "host", ":9", ":8"), "SignatureDoesNotMatch"),
    "another body": (
        lambda r: changed(r, headers={**r.headers, "x-amz-content-sha256": "0" * 64}),
        "SignatureDoesNotMatch",
    ),
    "another user": (
        lambda r: with_header(r, "authorization", "=key/", "=yek/"),
        "InvalidAccessKeyId",
    ),
    "another service": (
        lambda r: with_header(r, "authorization", "/s3/", "/ec2/"),
        "AccessDenied",
    ),
    "the host is not signed": (
        lambda r: with_header(r, "authorization", "host;", ""),
        "SignatureDoesNotMatch",
    ),
    "an empty signature": (
        lambda r: changed(
            r, headers={**r.headers, "authorization": r.headers["authorization"][:-64]}
        ),
        "AccessDenied",
    ),
    "an older scheme": (
        lambda r: changed(r, headers={**r.headers, "authorization": "AWS key:c2lnbmF0dXJl"}),
        "AccessDenied",
    ),
    "no time": (lambda r: without(r, "x-amz-date"), "AccessDenied"),
}


@pytest.mark.parametrize("how", FORGED)
def test_a_request_that_differs_from_the_signed_one_is_refused(how: str) -> None:
    forge, code = FORGED[how]
    refused = refusal(forge(signed()), LOGIN, now())
    assert refused is not None
    assert refused[0] == code


def test_another_secret_key_is_refused() -> None:
    other = Login(access_key="key", secret_key="other")
    for presigned in (False, True):
        refused = refusal(signed(presigned=presigned), other, now())
        assert refused is not None
        assert refused[0] == "SignatureDoesNotMatch"


@pytest.mark.parametrize(
    ("presigned", "minutes"), [(False, 16), (False, -16), (True, 61), (True, -16)]
)
def test_a_signature_of_another_time_is_refused(presigned: bool, minutes: int) -> None:
    refused = refusal(signed(presigned=presigned), LOGIN, now() + timedelta(minutes=minutes))
    assert refused is not None
    assert refused[0] == "RequestTimeTooSkewed"


def test_a_presigned_url_cannot_be_given_more_time() -> None:
    request = signed(presigned=True)
    assert b"X-Amz-Expires=3600" in request.query
    longer = changed(request, query=request.query.replace(b"=3600", b"=36000"))
    refused = refusal(longer, LOGIN, now())
    assert refused is not None
    assert refused[0] == "SignatureDoesNotMatch"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"X-Amz-Expires", b"9" * 5000),
        (b"X-Amz-Expires", b""),
        (b"X-Amz-Date", b"00010101T000000Z"),
        (b"X-Amz-Date", b"99991231T235959Z"),
    ],
)
def test_a_presigned_url_with_invalid_times_is_refused(name: bytes, value: bytes) -> None:
    request = signed(presigned=True)
    query = re.sub(rb"(%s=)[^&]*" % name, rb"\g<1>" + value, request.query)
    assert query != request.query
    assert refusal(changed(request, query=query), LOGIN, now()) is not None


# ---------------------------------------------------------------- the real server


def test_boto3_pyarrow_and_a_presigned_url_reach_the_server(server: S3Server) -> None:
    client = server.client()
    assert client.get_object(Bucket="lake", Key=NAME)["Body"].read() == b"{}"
    assert client.list_objects_v2(Bucket="lake", Prefix=NAME)["KeyCount"] == 1
    arrow = pyarrow.fs.S3FileSystem(
        access_key=ACCESS_KEY,
        secret_key=server.secret_key,
        region="us-east-1",
        endpoint_override=server.endpoint,
    )
    # More than one part.
    rows = pa.table({"a": pa.array(os.urandom(16) for _ in range(700_000))})
    pq.write_table(rows, "lake/a table/d=1/x.parquet", filesystem=arrow, compression="none")
    assert pq.read_table("lake/a table/d=1/x.parquet", filesystem=arrow).num_rows == 700_000
    url = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=server.secret_key,
        region_name="us-east-1",
        config=Config(signature_version="s3v4"),
    ).generate_presigned_url("get_object", Params={"Bucket": "lake", "Key": NAME})
    with urllib.request.urlopen(url) as answer:
        assert answer.read() == b"{}"
        assert not [name for name in answer.headers if name.lower().startswith("access-control-")]


def ask(server: S3Server, method: str, path: str, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request(method, path, b"{}" if method in ("PUT", "POST") else None, headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/lake?list-type=2"),
        ("GET", "/lake/root.json"),
        ("HEAD", "/lake/root.json"),
        ("PUT", "/lake/root.json"),
        ("POST", "/lake/root.json?uploads"),
        ("DELETE", "/lake/root.json"),
        ("OPTIONS", "/lake/root.json"),
        ("GET", "/_ministack/health"),
        ("POST", "/_ministack/reset"),
    ],
)
def test_without_a_signature_every_request_is_refused_and_no_answer_has_cors_headers(
    server: S3Server, method: str, path: str
) -> None:
    page = {"Origin": "http://127.0.0.1:9911", "Access-Control-Request-Method": "PUT"}
    answer = ask(server, method, path, **page)
    assert answer.status == 403
    assert not [
        name for name, _ in answer.getheaders() if name.lower().startswith("access-control")
    ]


def test_the_answer_to_a_signed_request_has_no_cors_headers(server: S3Server) -> None:
    headers: dict[str, str] = {}
    client = server.client()
    client.meta.events.register(
        "before-send.s3", lambda request, **_: request.headers.update({"Origin": "http://x"})
    )
    client.meta.events.register(
        "after-call.s3", lambda http_response, **_: headers.update(http_response.headers)
    )
    client.get_object(Bucket="lake", Key=NAME)
    assert headers
    assert not [name for name in headers if name.lower().startswith("access-control")]


def test_a_person_opens_a_linked_object_with_the_keys_as_user_and_password(
    server: S3Server,
) -> None:
    path = f"/lake/{quote(NAME)}"
    page = {"Accept": "text/html,application/xhtml+xml"}

    def basic(secret: str) -> dict[str, str]:
        words = base64.b64encode(f"{ACCESS_KEY}:{secret}".encode()).decode()
        return {**page, "Authorization": f"Basic {words}"}

    unsigned = ask(server, "GET", path, **page)
    assert (unsigned.status, unsigned.getheader("WWW-Authenticate", "")[:12]) == (
        401,
        "Basic realm=",
    )
    assert ask(server, "GET", path, **basic("tallystick")).status == 401
    assert ask(server, "GET", path, **basic(server.secret_key)).status == 200
    # Another page could make a browser send the credentials.
    for method in ("PUT", "POST", "DELETE"):
        assert ask(server, method, path, **basic(server.secret_key)).status == 403


def test_any_other_key_is_refused(server: S3Server) -> None:
    for access_key, secret_key, code in (
        (ACCESS_KEY, "tallystick", "SignatureDoesNotMatch"),
        ("test", server.secret_key, "InvalidAccessKeyId"),
    ):
        client = boto3.client(
            "s3",
            endpoint_url=server.endpoint,
            aws_access_key_id=access_key,
            aws_secret_access_key=secret_key,
            region_name="us-east-1",
        )
        for call in (
            lambda c: c.list_buckets(),
            lambda c: c.get_object(Bucket="lake", Key=NAME),
            lambda c: c.put_object(Bucket="lake", Key=NAME, Body=b"x" * 1_000_000),
        ):
            with pytest.raises(ClientError) as refused:
                call(client)
            assert refused.value.response["Error"]["Code"] == code


def test_a_large_body_arrives_whole(server: S3Server) -> None:
    body = os.urandom(3 << 20)
    server.client().put_object(Bucket="lake", Key="large", Body=body)
    assert server.client().get_object(Bucket="lake", Key="large")["Body"].read() == body


@pytest.mark.parametrize("parts", [[b""], [b"all"], [b"a", b"", b"bc", b"d"]])
def test_the_body_of_a_request_is_one_message(parts: list[bytes]) -> None:
    messages = [
        {"type": "http.request", "body": part, "more_body": number + 1 < len(parts)}
        for number, part in enumerate(parts)
    ]
    messages.append({"type": "http.disconnect"})

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    whole = in_one_part(receive)
    expected = {"type": "http.request", "body": b"".join(parts), "more_body": False}
    assert asyncio.run(whole()) == expected
    assert asyncio.run(whole()) == {"type": "http.disconnect"}


def test_a_client_that_leaves_within_its_body_is_no_request() -> None:
    messages = [
        {"type": "http.request", "body": b"half", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    assert asyncio.run(in_one_part(receive)()) == {"type": "http.disconnect"}


def test_the_key_is_in_no_argument_and_in_no_file_of_the_server(server: S3Server) -> None:
    assert server.process is not None
    for status in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert server.secret_key.encode() not in status.read_bytes()
        except OSError:
            continue
    files = [path for path in server.state_dir.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if server.secret_key.encode() in path.read_bytes()]


AS_ANOTHER_USER = """
import encodings.idna, os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for line in ("GET /", "GET /lake?list-type=2", "PUT /lake/x", "DELETE /lake/x"):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        connection.sendall(f"{line} HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 0\\r\\n\\r\\n".encode())
        print(connection.recv(12).decode())
for name in ("environ", "mem"):
    try:
        open(f"/proc/{sys.argv[2]}/{name}", "rb").read(1)
        print("read")
    except PermissionError:
        print("closed")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_of_the_machine_gets_nothing(server: S3Server) -> None:
    assert server.process is not None
    ended = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER_USER, str(server.port), str(server.process.pid)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.splitlines() == ["HTTP/1.1 403"] * 4 + ["closed"] * 2
