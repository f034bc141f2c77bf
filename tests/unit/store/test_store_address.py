"""Lake URIs and the keys below them: one allow-list, and a message that names the rule."""

from __future__ import annotations

import pytest

from tallystick.errors import InvalidPipeline
from tallystick.store.address import (
    KEY_BYTES_MAX,
    S3Address,
    check_key,
    parse_memory_uri,
    parse_s3_uri,
)
from tallystick.store.memory import MemoryStore
from tallystick.store.open import open_store


@pytest.mark.parametrize(
    ("uri", "bucket", "prefix"),
    [
        ("s3://lake/flights", "lake", "flights"),
        ("s3://lake/flights/", "lake", "flights"),
        ("s3://my.lake-1/a/B_c/day=1/.hidden", "my.lake-1", "a/B_c/day=1/.hidden"),
        (f"s3://{'b' * 63}/{'p' * 255}", "b" * 63, "p" * 255),
    ],
)
def test_a_lake_uri_is_bucket_and_prefix(uri: str, bucket: str, prefix: str) -> None:
    address = parse_s3_uri(uri)
    assert (address.bucket, address.prefix) == (bucket, prefix)
    assert address.uri == uri.removesuffix("/")
    assert parse_s3_uri(address.uri) == address


@pytest.mark.parametrize(
    ("uri", "rule"),
    [
        ("", "does not begin with s3://"),
        ("lake/flights", "does not begin with s3://"),
        ("s3:/lake/flights", "does not begin with s3://"),
        ("s3a://lake/flights", "does not begin with s3://"),
        ("S3://lake/flights", "does not begin with s3://"),
        ("file:///lake/flights", "does not begin with s3://"),
        ("s3://lake", "a whole bucket"),
        ("s3://lake/", "a whole bucket"),
        ("s3:///flights", "expected a bucket name"),
        ("s3://la/flights", "expected a bucket name"),
        (f"s3://{'b' * 64}/flights", "expected a bucket name"),
        ("s3://Lake/flights", "expected a bucket name"),
        ("s3://la_ke/flights", "expected a bucket name"),
        ("s3://-lake/flights", "expected a bucket name"),
        ("s3://lake-/flights", "expected a bucket name"),
        ("s3://la..ke/flights", "expected a bucket name"),
        ("s3://la.-ke/flights", "expected a bucket name"),
        ("s3://10.0.0.1/flights", "expected a bucket name"),
        ("s3://lake:9000/flights", "expected a bucket name"),
        ("s3://xn--lake/flights", "reserves bucket names"),
        ("s3://lake--use1-az4--x-s3/flights", "directory bucket"),
        ("s3://lake--ol-s3/flights", "Object Lambda"),
        ("s3://lake//flights", "part ''"),
        ("s3://lake/flights//", "part ''"),
        ("s3://lake/a/../b", "part '..'"),
        ("s3://lake/./b", "part '.'"),
        ("s3://lake/a b", "part 'a b'"),
        ("s3://lake/a%2fb", "part 'a%2fb'"),
        ("s3://lake/a?b", "part 'a"),
        ("s3://lake/a#b", "part 'a#b'"),
        ("s3://lake/a\nb", "part 'a"),
        ("s3://lake/flights\n", "part 'flights"),
        ("s3://lake/fl\u0456ghts", "part 'fl"),  # a Cyrillic i
        (f"s3://lake/{'p/' * 250}p", "more than 400 bytes"),
    ],
)
def test_a_lake_uri_that_clients_could_read_differently_is_refused(uri: str, rule: str) -> None:
    with pytest.raises(InvalidPipeline) as raised:
        parse_s3_uri(uri)
    assert rule in raised.value.message
    assert repr(uri) in raised.value.message
    assert "s3://lake/flights" in raised.value.hint


def test_a_lake_uri_with_an_at_may_contain_a_secret_and_is_not_repeated() -> None:
    with pytest.raises(InvalidPipeline, match="lake URI: expected no @") as raised:
        parse_s3_uri("s3://lake/fl@ghts")
    assert "fl@ghts" not in str(raised.value)


@pytest.mark.parametrize(
    "uri",
    ["memory", "memory:/a", "memory://", "memory://A", "memory://a/b", "memory://a\n", "s3://a/b"],
)
def test_a_memory_store_has_a_plain_name(uri: str) -> None:
    with pytest.raises(InvalidPipeline, match="a memory store is memory://"):
        parse_memory_uri(uri)


def test_a_key_is_limited_together_with_its_prefix() -> None:
    address = S3Address(bucket="lake", prefix="p" * 100)
    longest = "k" * (KEY_BYTES_MAX - 101)
    assert len(address.full_key(longest)) == KEY_BYTES_MAX
    with pytest.raises(InvalidPipeline, match="more than 1024 bytes together with the prefix"):
        address.full_key(longest + "k")


def test_a_key_is_measured_in_bytes() -> None:
    check_key("ä" * (KEY_BYTES_MAX // 2))
    with pytest.raises(InvalidPipeline, match="1026 bytes, more than 1024"):
        check_key("ä" * (KEY_BYTES_MAX // 2 + 1))


def test_memory_stores_are_shared_by_name() -> None:
    store = open_store("memory://shared-by-name")
    store.create("a", b"x")
    assert isinstance(store, MemoryStore)
    assert open_store("memory://shared-by-name").get("a") == store.get("a")
    assert open_store("memory://another-name").get("a") is None
    assert store.uri == "memory://shared-by-name"


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "lake/flights",
        "gs://lake/flights",
        "s3a://lake/flights",
        "https://lake.s3.amazonaws.com/",
    ],
)
def test_other_stores_are_refused_with_a_hint(uri: str) -> None:
    with pytest.raises(
        InvalidPipeline, match=r"begins with neither s3:// nor memory://.*AWS_ENDPOINT_URL_S3"
    ):
        open_store(uri)
