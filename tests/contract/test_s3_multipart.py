"""Files above the limit of one PUT, on two servers: complete under their key or absent, after any failure."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest

from tallystick.engine.upload import AttemptPrefix
from tallystick.runtime import system_runtime
from tallystick.store import Applied, NotApplied, Unknown
from tallystick.store.s3 import S3Settings, S3Store
from tallystick_devstack.process import wait_until
from tallystick_devstack.testing.fault_proxy import NO_FAULT, FaultProxy, HttpFault
from tallystick_devstack.testing.store_contract import applied, assert_holds

PART_BYTES = 5 << 20  # the minimum of S3 for all parts but the last
SETTINGS = S3Settings(one_put_bytes_max=PART_BYTES, part_bytes=PART_BYTES, read_attempts_max=2)
LOST = HttpFault(forward="once", answer="close")
NEVER = HttpFault(forward="never", answer="close")
REFUSED = HttpFault(forward="never", answer=403, code="AccessDenied")
BROKEN = HttpFault(forward="never", answer=500, code="InternalError")
BEGIN, PART, END, ABORT = (
    "CreateMultipartUpload",
    "UploadPart",
    "CompleteMultipartUpload",
    "AbortMultipartUpload",
)
OWNER = "x-amz-expected-bucket-owner"
ENCRYPTION = "x-amz-server-side-encryption"
PLAN = "plans/20130101T000000000Z-20130102T000000000Z/" + "0" * 32 + ".json"
Open = Callable[..., S3Store]
Requests = list[tuple[str, dict[str, str]]]


@pytest.fixture(params=["ministack", "versitygw"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def open_at(lake_uri: str, session: boto3.session.Session) -> Open:
    def opened(endpoint: str, **options: Any) -> S3Store:
        settings = replace(SETTINGS, endpoint_url=endpoint, **options)
        return S3Store(lake_uri, settings=settings, session=session)

    return opened


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file of two parts and one byte."""
    return sized(tmp_path, 2 * PART_BYTES + 1)


def sized(folder: Path, size_bytes: int) -> Path:
    path = folder / f"{size_bytes}.parquet"
    path.write_bytes(random.Random(size_bytes).randbytes(size_bytes))
    return path


def requests_of(store: S3Store) -> Requests:
    """Record the store's requests from now on: the operation and its headers, with lower-case names."""
    sent: Requests = []

    def note(request: Any, event_name: str, **_: Any) -> None:
        headers = {
            name.lower(): value.decode() if isinstance(value, bytes) else str(value)
            for name, value in request.headers.items()
        }
        sent.append((event_name.rsplit(".", 1)[-1], headers))

    for client in (store._writer, store._reader):
        client.meta.events.register("before-send.s3", note)
    return sent


def operations(requests: Iterable[tuple[str, dict[str, str]]]) -> list[str]:
    return [name for name, _ in requests]


def unfinished(store: S3Store) -> list[str]:
    """Return the keys of this lake with an upload that is neither completed nor aborted."""
    uploads = store._reader.list_multipart_uploads(Bucket="contract").get("Uploads", [])
    base = f"{store.uri.removeprefix('s3://contract/')}/"
    return [u["Key"].removeprefix(base) for u in uploads if u["Key"].startswith(base)]


def etag_of(body: bytes) -> str:
    """Return the ETag of S3 for a multipart object: the MD5 of the parts' MD5s, and the number of parts."""
    parts = [body[at : at + PART_BYTES] for at in range(0, len(body), PART_BYTES)]
    digests = b"".join(hashlib.md5(part).digest() for part in parts)
    return f'"{hashlib.md5(digests).hexdigest()}-{len(parts)}"'


@pytest.mark.parametrize(
    ("size_bytes", "parts"),
    [(PART_BYTES, 0), (PART_BYTES + 1, 2), (2 * PART_BYTES, 2), (2 * PART_BYTES + 1, 3)],
)
def test_the_recorded_size_and_etag_are_those_of_the_stored_file(
    open_at: Open, url: str, tmp_path: Path, size_bytes: int, parts: int
) -> None:
    file = sized(tmp_path, size_bytes)
    store = open_at(url)
    requests = requests_of(store)
    prefix = AttemptPrefix(
        store=store, runtime=system_runtime(), plan=PLAN, attempt="a-1", task="00000"
    )
    key, etag = prefix.upload("flights", file)
    sent = [BEGIN, *[PART] * parts, END] if parts else ["PutObject"]
    assert operations(requests) == sent
    assert requests[-1][1]["if-none-match"] == "*"
    (listed,) = store.list("")
    assert (listed.key, listed.size_bytes, listed.etag) == (key, size_bytes, etag)
    stored = store.get(key)
    assert stored is not None
    assert stored.body == file.read_bytes()
    assert etag == stored.etag
    if parts:
        assert etag == etag_of(stored.body)


def test_a_large_file_over_an_object_returns_exists_and_leaves_no_parts(
    open_at: Open, url: str, file: Path
) -> None:
    store = open_at(url)
    etag = applied(store.create("a", b"one"))
    assert store.create("a", file) == NotApplied(because="exists")
    assert_holds(store, "a", b"one", etag)
    assert unfinished(store) == []


@pytest.mark.parametrize("fault", [LOST, NEVER, BROKEN], ids=["lost reply", "never arrived", "500"])
def test_a_part_that_fails_once_is_sent_again(
    open_at: Open, url: str, file: Path, fault: HttpFault
) -> None:
    with FaultProxy(url, [NO_FAULT, fault]) as proxy:
        store = open_at(proxy.url)
        etag = applied(store.create("a", file))
        assert len([r for r in proxy.seen if r.method == "PUT"]) == 4
        assert_holds(store, "a", file.read_bytes(), etag)


def test_a_part_that_cannot_be_sent_leaves_nothing(open_at: Open, url: str, file: Path) -> None:
    with FaultProxy(url, itertools.chain([NO_FAULT], itertools.repeat(BROKEN))) as proxy:
        store = open_at(proxy.url)
        assert store.create("a", file) == Unknown(because="HTTP 500 InternalError")
        assert proxy.seen[-1].method == "DELETE"
        assert store.get("a") is None
        assert unfinished(store) == []


def test_a_file_that_is_deleted_while_it_is_sent_leaves_nothing(
    open_at: Open, url: str, file: Path
) -> None:
    store = open_at(url)
    requests = requests_of(store)
    store._reader.meta.events.register("after-call.s3.UploadPart", lambda **_: file.unlink())
    with pytest.raises(FileNotFoundError):
        store.create("a", file)
    assert operations(requests) == [BEGIN, PART, ABORT]
    assert store.get("a") is None
    assert unfinished(store) == []


def test_a_completion_whose_reply_is_lost_is_unknown_and_is_not_aborted(
    open_at: Open, url: str, file: Path
) -> None:
    with FaultProxy(url, [NO_FAULT, LOST], method="POST") as proxy:
        store = open_at(proxy.url)
        assert isinstance(store.create("a", file), Unknown)
        assert "DELETE" not in [r.method for r in proxy.seen]
        stored = store.get("a")
        assert stored is not None
        assert stored.body == file.read_bytes()
        assert store.create("a", file) == NotApplied(because="exists")


@pytest.mark.parametrize("fault", [NEVER, BROKEN], ids=["never arrived", "500"])
def test_a_completion_that_may_arrive_later_is_unknown_and_its_parts_remain(
    open_at: Open, url: str, file: Path, fault: HttpFault
) -> None:
    with FaultProxy(url, [NO_FAULT, fault], method="POST") as proxy:
        store = open_at(proxy.url)
        assert isinstance(store.create("a", file), Unknown)
        assert "DELETE" not in [r.method for r in proxy.seen]
        assert store.get("a") is None
        assert unfinished(store) == ["a"]
        assert isinstance(store.create("a", file), Applied)


def test_a_failure_to_abort_does_not_hide_the_failure_before_it(
    open_at: Open, url: str, file: Path
) -> None:
    faults = [
        NO_FAULT,
        NO_FAULT,
        BROKEN,
        BROKEN,
        REFUSED,
    ]  # begin, a part, the next part twice, abort
    with FaultProxy(url, faults, method=None) as proxy:
        assert open_at(proxy.url).create("a", file) == Unknown(because="HTTP 500 InternalError")
        assert proxy.seen[-1].method == "DELETE"


def test_a_process_killed_during_an_upload_leaves_nothing_under_the_key(
    open_at: Open, url: str, file: Path, session: boto3.session.Session
) -> None:
    program = (
        "import sys; from pathlib import Path; from tallystick.store.s3 import S3Settings, S3Store\n"
        f"S3Store(sys.argv[1], settings=S3Settings(one_put_bytes_max={PART_BYTES}, part_bytes={PART_BYTES},"
        " endpoint_url=sys.argv[2])).create('a', Path(sys.argv[3]))"
    )
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test-secret"}
    hang = HttpFault(forward="never", answer="hang")
    store = open_at(url)
    with FaultProxy(url, [NO_FAULT, hang]) as proxy:
        child = subprocess.Popen(
            [sys.executable, "-c", program, store.uri, proxy.url, str(file)],
            env={**os.environ, **keys, "AWS_DEFAULT_REGION": "us-east-1"},
        )
        try:
            wait_until(
                lambda: len([r for r in proxy.seen if r.method == "PUT"]) == 2,
                deadline_s=60,
                what="the second part being sent",
            )
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
        assert [r.upstream_statuses for r in proxy.seen] == [[200], [200], []]
    assert store.get("a") is None
    assert [*store.list("")] == []
    assert unfinished(store) == ["a"]  # the bucket's lifecycle rule aborts it
    assert_holds(store, "a", file.read_bytes(), applied(store.create("a", file)))


def test_settings_are_sent_with_each_request_that_they_are_for(
    open_at: Open, ministack_url: str, file: Path
) -> None:
    store = open_at(
        ministack_url, bucket_owner="123456789012", encryption="aws:kms", kms_key="alias/lake"
    )
    requests = requests_of(store)
    applied(store.create("a", file))
    assert store.create("a", file) == NotApplied(because="exists")
    assert operations(requests) == [BEGIN, PART, PART, PART, END] * 2 + [ABORT]
    assert {headers.get(OWNER) for _, headers in requests} == {"123456789012"}
    assert {name for name, headers in requests if ENCRYPTION in headers} == {BEGIN}
    assert requests[0][1][ENCRYPTION] == "aws:kms"
    assert requests[0][1][f"{ENCRYPTION}-aws-kms-key-id"] == "alias/lake"
    assert [name for _, headers in requests for name in headers if "checksum" in name] == []


def test_all_requests_of_an_upload_have_the_same_kind_of_checksum(
    open_at: Open, url: str, file: Path
) -> None:
    with FaultProxy(url) as proxy:
        store = open_at(proxy.url, checksums=True)
        requests = requests_of(store)
        etag = applied(store.create("a", file))
        assert_holds(store, "a", file.read_bytes(), etag)
        end = next(r for r in proxy.seen if r.method == "POST" and b"<Part>" in r.body)
    assert requests[0][1]["x-amz-checksum-algorithm"] == "CRC32"
    parts = [headers for name, headers in requests if name == PART]
    assert len(parts) == end.body.count(b"<ChecksumCRC32>") == 3
    for headers in parts:
        text = headers.get("x-amz-trailer", "") + " ".join(headers)
        assert "x-amz-checksum-crc32" in text


def test_no_part_is_kept_in_memory(versitygw_url: str, lake_uri: str, tmp_path: Path) -> None:
    """Compare the process's peak memory before and after a file of six parts of the default size."""
    part = S3Settings().part_bytes
    file = tmp_path / "large"
    with file.open("wb") as stream:
        stream.truncate(6 * part)  # sparse: uses no disk space
    program = (
        "import re, sys; from pathlib import Path\n"
        "from tallystick.store.s3 import S3Settings, S3Store\n"
        "store = S3Store(sys.argv[1], settings=S3Settings(endpoint_url=sys.argv[2]))\n"
        # Not getrusage: its peak starts with that of the process that forked this one.
        "peak = lambda: int(re.search(r'VmHWM:\\s+(\\d+) kB', Path('/proc/self/status').read_text())[1])\n"
        "store.create('small', b'x' * 100_000); before = peak()\n"
        "print(type(store.create('large', Path(sys.argv[3]))).__name__, peak() - before)"
    )
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test-secret"}
    printed = subprocess.run(
        [sys.executable, "-c", program, lake_uri, versitygw_url, str(file)],
        env={**os.environ, **keys, "AWS_DEFAULT_REGION": "us-east-1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout.split()
    assert printed[0] == "Applied"
    assert int(printed[1]) * 1024 < part // 2
