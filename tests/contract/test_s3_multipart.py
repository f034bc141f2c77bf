"""Files above the limit of one PUT, on two servers: whole under their key or not there at all, whatever breaks."""

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

PART_BYTES = 5 << 20  # the least that S3 takes for any part but the last
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
    def opened(endpoint: str, **words: Any) -> S3Store:
        settings = replace(SETTINGS, endpoint_url=endpoint, **words)
        return S3Store(lake_uri, settings=settings, session=session)

    return opened


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two parts and a bit."""
    return sized(tmp_path, 2 * PART_BYTES + 1)


def sized(folder: Path, size_bytes: int) -> Path:
    made = folder / f"{size_bytes}.parquet"
    made.write_bytes(random.Random(size_bytes).randbytes(size_bytes))
    return made


def requests_of(store: S3Store) -> Requests:
    """What the store sends from now on: the operation and its headers, lower case."""
    seen: Requests = []

    def note(request: Any, event_name: str, **_: Any) -> None:
        told = {
            name.lower(): value.decode() if isinstance(value, bytes) else str(value)
            for name, value in request.headers.items()
        }
        seen.append((event_name.rsplit(".", 1)[-1], told))

    for client in (store._writer, store._reader):
        client.meta.events.register("before-send.s3", note)
    return seen


def operations(seen: Iterable[tuple[str, dict[str, str]]]) -> list[str]:
    return [name for name, _ in seen]


def unfinished(store: S3Store) -> list[str]:
    """Keys of this lake with an upload that is neither ended nor aborted."""
    found = store._reader.list_multipart_uploads(Bucket="contract").get("Uploads", [])
    base = f"{store.uri.removeprefix('s3://contract/')}/"
    return [one["Key"].removeprefix(base) for one in found if one["Key"].startswith(base)]


def etag_of(body: bytes) -> str:
    """The ETag that S3 gives to an object in parts: the MD5 of their MD5s, and how many they are."""
    parts = [body[at : at + PART_BYTES] for at in range(0, len(body), PART_BYTES)]
    digests = b"".join(hashlib.md5(part).digest() for part in parts)
    return f'"{hashlib.md5(digests).hexdigest()}-{len(parts)}"'


@pytest.mark.parametrize(
    ("size_bytes", "parts"),
    [(PART_BYTES, 0), (PART_BYTES + 1, 2), (2 * PART_BYTES, 2), (2 * PART_BYTES + 1, 3)],
)
def test_what_is_recorded_of_a_file_is_what_lies_there(
    open_at: Open, url: str, tmp_path: Path, size_bytes: int, parts: int
) -> None:
    file = sized(tmp_path, size_bytes)
    store = open_at(url)
    seen = requests_of(store)
    prefix = AttemptPrefix(
        store=store, runtime=system_runtime(), plan=PLAN, attempt="a-1", task="00000"
    )
    key, etag = prefix.upload("flights", file)
    sent = [BEGIN, *[PART] * parts, END] if parts else ["PutObject"]
    assert operations(seen) == sent
    assert seen[-1][1]["if-none-match"] == "*"
    (listed,) = store.list("")
    assert (listed.key, listed.size_bytes, listed.etag) == (key, size_bytes, etag)
    found = store.get(key)
    assert found is not None
    assert found.body == file.read_bytes()
    assert etag == found.etag
    if parts:
        assert etag == etag_of(found.body)


def test_a_large_file_over_an_object_answers_exists_and_leaves_no_parts(
    open_at: Open, url: str, file: Path
) -> None:
    store = open_at(url)
    etag = applied(store.create("a", b"one"))
    assert store.create("a", file) == NotApplied(because="exists")
    assert_holds(store, "a", b"one", etag)
    assert unfinished(store) == []


@pytest.mark.parametrize("fault", [LOST, NEVER, BROKEN], ids=["lost reply", "never came", "500"])
def test_a_part_that_fails_once_is_sent_again(
    open_at: Open, url: str, file: Path, fault: HttpFault
) -> None:
    with FaultProxy(url, [NO_FAULT, fault]) as proxy:
        store = open_at(proxy.url)
        etag = applied(store.create("a", file))
        assert len([one for one in proxy.seen if one.method == "PUT"]) == 4
        assert_holds(store, "a", file.read_bytes(), etag)


def test_a_part_that_cannot_be_sent_leaves_nothing(open_at: Open, url: str, file: Path) -> None:
    with FaultProxy(url, itertools.chain([NO_FAULT], itertools.repeat(BROKEN))) as proxy:
        store = open_at(proxy.url)
        assert store.create("a", file) == Unknown(because="HTTP 500 InternalError")
        assert proxy.seen[-1].method == "DELETE"
        assert store.get("a") is None
        assert unfinished(store) == []


def test_a_file_that_vanishes_while_it_is_sent_leaves_nothing(
    open_at: Open, url: str, file: Path
) -> None:
    store = open_at(url)
    seen = requests_of(store)
    store._reader.meta.events.register("after-call.s3.UploadPart", lambda **_: file.unlink())
    with pytest.raises(FileNotFoundError):
        store.create("a", file)
    assert operations(seen) == [BEGIN, PART, ABORT]
    assert store.get("a") is None
    assert unfinished(store) == []


def test_an_end_whose_reply_is_lost_is_unknown_and_nothing_is_taken_back(
    open_at: Open, url: str, file: Path
) -> None:
    with FaultProxy(url, [NO_FAULT, LOST], method="POST") as proxy:
        store = open_at(proxy.url)
        assert isinstance(store.create("a", file), Unknown)
        assert "DELETE" not in [one.method for one in proxy.seen]
        found = store.get("a")
        assert found is not None
        assert found.body == file.read_bytes()
        assert store.create("a", file) == NotApplied(because="exists")


@pytest.mark.parametrize("fault", [NEVER, BROKEN], ids=["never came", "500"])
def test_an_end_that_may_come_later_is_unknown_and_its_parts_stay(
    open_at: Open, url: str, file: Path, fault: HttpFault
) -> None:
    with FaultProxy(url, [NO_FAULT, fault], method="POST") as proxy:
        store = open_at(proxy.url)
        assert isinstance(store.create("a", file), Unknown)
        assert "DELETE" not in [one.method for one in proxy.seen]
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
    ]  # begin, a part, the next one twice, abort
    with FaultProxy(url, faults, method=None) as proxy:
        assert open_at(proxy.url).create("a", file) == Unknown(because="HTTP 500 InternalError")
        assert proxy.seen[-1].method == "DELETE"


def test_a_process_killed_part_way_leaves_nothing_under_the_key(
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
                lambda: len([one for one in proxy.seen if one.method == "PUT"]) == 2,
                deadline_s=60,
                what="the second part being sent",
            )
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
        assert [one.upstream_statuses for one in proxy.seen] == [[200], [200], []]
    assert store.get("a") is None
    assert [*store.list("")] == []
    assert unfinished(store) == ["a"]  # what the bucket's lifecycle rule is for
    assert_holds(store, "a", file.read_bytes(), applied(store.create("a", file)))


def test_settings_go_with_each_request_that_they_are_about(
    open_at: Open, ministack_url: str, file: Path
) -> None:
    store = open_at(
        ministack_url, bucket_owner="123456789012", encryption="aws:kms", kms_key="alias/lake"
    )
    seen = requests_of(store)
    applied(store.create("a", file))
    assert store.create("a", file) == NotApplied(because="exists")
    assert operations(seen) == [BEGIN, PART, PART, PART, END] * 2 + [ABORT]
    assert {headers.get(OWNER) for _, headers in seen} == {"123456789012"}
    assert {name for name, headers in seen if ENCRYPTION in headers} == {BEGIN}
    assert seen[0][1][ENCRYPTION] == "aws:kms"
    assert seen[0][1][f"{ENCRYPTION}-aws-kms-key-id"] == "alias/lake"
    assert [name for _, headers in seen for name in headers if "checksum" in name] == []


def test_checksums_are_of_one_kind_from_begin_to_end(open_at: Open, url: str, file: Path) -> None:
    with FaultProxy(url) as proxy:
        store = open_at(proxy.url, checksums=True)
        seen = requests_of(store)
        etag = applied(store.create("a", file))
        assert_holds(store, "a", file.read_bytes(), etag)
        end = next(one for one in proxy.seen if one.method == "POST" and b"<Part>" in one.body)
    assert seen[0][1]["x-amz-checksum-algorithm"] == "CRC32"
    parts = [headers for name, headers in seen if name == PART]
    assert len(parts) == end.body.count(b"<ChecksumCRC32>") == 3
    for headers in parts:
        said = headers.get("x-amz-trailer", "") + " ".join(headers)
        assert "x-amz-checksum-crc32" in said


def test_no_part_is_held_in_memory(versitygw_url: str, lake_uri: str, tmp_path: Path) -> None:
    """The process's peak, before and after a file of six parts of the size that is used."""
    part = S3Settings().part_bytes
    file = tmp_path / "large"
    with file.open("wb") as stream:
        stream.truncate(6 * part)  # sparse: takes no room here
    program = (
        "import re, sys; from pathlib import Path\n"
        "from tallystick.store.s3 import S3Settings, S3Store\n"
        "store = S3Store(sys.argv[1], settings=S3Settings(endpoint_url=sys.argv[2]))\n"
        # Not getrusage: its peak begins with that of the process that forked this one.
        "peak = lambda: int(re.search(r'VmHWM:\\s+(\\d+) kB', Path('/proc/self/status').read_text())[1])\n"
        "store.create('small', b'x' * 100_000); before = peak()\n"
        "print(type(store.create('large', Path(sys.argv[3]))).__name__, peak() - before)"
    )
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test-secret"}
    told = subprocess.run(
        [sys.executable, "-c", program, lake_uri, versitygw_url, str(file)],
        env={**os.environ, **keys, "AWS_DEFAULT_REGION": "us-east-1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout.split()
    assert told[0] == "Applied"
    assert int(told[1]) * 1024 < part // 2
