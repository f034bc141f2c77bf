"""Parses lake URIs and checks object keys.

    s3://<bucket>/<prefix>      objects `<prefix>/<key>` of one bucket
    memory://<name>             a store of this process, for tests

A name that needs escaping is refused: a lake is read by boto3, PyArrow, DuckDB and Spark, and their rules for escapes
differ.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tallystick.errors import InvalidPipeline

KEY_BYTES_MAX = 1024
"""The maximum length of an object key in UTF-8, prefix included (S3 User Guide, "Naming Amazon S3 objects")."""
PREFIX_BYTES_MAX = 400

# S3 User Guide, "General purpose bucket naming rules".
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_IPV4 = re.compile(r"\d+\.\d+\.\d+\.\d+")
_BUCKET_RESERVED = ("xn--", "sthree-", "amzn-s3-demo-")
_BUCKET_FOREIGN = {
    "--x-s3": "a directory bucket, which does not list in key order",
    "--ol-s3": "an Object Lambda access point, which cannot be written",
    ".mrap": "a Multi-Region Access Point, which has no single order of writes",
    "--table-s3": "a table bucket, which belongs to S3 Tables",
}
_PREFIX_PART = re.compile(r"[A-Za-z0-9._=-]{1,255}")
_MEMORY_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._=-]*(/[A-Za-z0-9_-][A-Za-z0-9._=-]*)*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Address:
    """The bucket and the prefix of a lake. The prefix has no slash at either end."""

    bucket: str
    prefix: str

    @property
    def uri(self) -> str:
        """The lake URI, without a slash at its end."""
        return f"s3://{self.bucket}/{self.prefix}"

    def full_key(self, key: str) -> str:
        """Return the key in the bucket for a key of the lake. Raises InvalidPipeline if it is not allowed or too long."""
        full = f"{self.prefix}/{check_key(key)}"
        if len(full.encode()) > KEY_BYTES_MAX:
            raise _bad_key(
                key,
                f"it has more than {KEY_BYTES_MAX} bytes together with the prefix {self.prefix!r}",
            )
        return full


def check_no_key(uri: str) -> None:
    """Raise InvalidPipeline if a lake URI contains an @, which may follow a secret; the message omits the URI."""
    if "@" in uri:
        raise InvalidPipeline(
            "lake URI: expected no @ (it may follow a user name or a key), found one.",
            hint="write it as s3://bucket/prefix, e.g. s3://lake/flights; set keys in AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY.",
        )


def parse_s3_uri(uri: str) -> S3Address:
    """Parse `s3://bucket/prefix`, with or without one slash at its end; raises InvalidPipeline with the broken rule."""
    check_no_key(uri)
    scheme, found, rest = uri.partition("://")
    if not found or scheme != "s3":
        raise _bad_uri(uri, "it does not begin with s3://")
    bucket, _, prefix = rest.partition("/")
    _check_bucket(uri, bucket)
    prefix = prefix.removesuffix("/")
    if not prefix:
        # gc deletes objects that the root does not reach. Without a prefix, these would be all objects of the bucket.
        raise _bad_uri(uri, "it names a whole bucket, but a lake needs a prefix of its own")
    for part in prefix.split("/"):
        if part in {".", ".."} or not _PREFIX_PART.fullmatch(part):
            raise _bad_uri(
                uri,
                f"the part {part!r} of its prefix is not one or more of A-Z, a-z, 0-9, '.', '_', '=', '-'",
            )
    if len(prefix) > PREFIX_BYTES_MAX:
        raise _bad_uri(uri, f"its prefix has more than {PREFIX_BYTES_MAX} bytes")
    return S3Address(bucket=bucket, prefix=prefix)


def parse_memory_uri(uri: str) -> str:
    """Parse `memory://name` and return the name; raises InvalidPipeline."""
    name = uri.removeprefix("memory://")
    if name == uri or not _MEMORY_NAME.fullmatch(name):
        raise _bad_uri(uri, "a memory store is memory:// and 1 to 63 of a-z, 0-9, '_' and '-'")
    return name


def check_key(key: str) -> str:
    """Return the key if every client reads it the same way, else raise InvalidPipeline.

    It has no empty part, no part `.` or `..` (HTTP clients resolve them), no control character (XML cannot contain it).
    """
    if len(key) <= PREFIX_BYTES_MAX and _PLAIN_KEY.fullmatch(key):
        return key
    for part in key.split("/"):
        if part in {"", ".", ".."}:
            raise _bad_key(key, f"it has the part {part!r}")
    _check_text(key)
    return key


def check_list_prefix(prefix: str) -> str:
    """Return the prefix if it is empty or the beginning of an allowed key, else raise InvalidPipeline."""
    if prefix:
        parts = prefix.split("/")
        if any(part in {"", ".", ".."} for part in parts[:-1]):
            raise _bad_key(prefix, "it has an empty part, '.' or '..'")
        _check_text(prefix)
    return prefix


def _check_text(key: str) -> None:
    if _CONTROL.search(key):
        raise _bad_key(key, "it has a control character")
    try:
        length_bytes = len(key.encode())
    except UnicodeEncodeError:
        raise _bad_key(key, "it is not valid Unicode") from None
    if length_bytes > KEY_BYTES_MAX:
        raise _bad_key(key, f"it has {length_bytes} bytes, more than {KEY_BYTES_MAX}")


def _check_bucket(uri: str, bucket: str) -> None:
    if (
        not _BUCKET.fullmatch(bucket)
        or ".." in bucket
        or ".-" in bucket
        or "-." in bucket
        or _IPV4.fullmatch(bucket)
    ):
        raise _bad_uri(
            uri,
            "expected a bucket name (3 to 63 of a-z, 0-9, '.' and '-', beginning and ending with a letter or a digit, "
            f"dots only between letters or digits, not an IP address), found {bucket!r}",
        )
    if bucket.startswith(_BUCKET_RESERVED):
        raise _bad_uri(uri, f"S3 reserves bucket names like {bucket!r}")
    for suffix, what in _BUCKET_FOREIGN.items():
        if bucket.endswith(suffix):
            raise _bad_uri(uri, f"{bucket!r} names {what}")


def _bad_uri(uri: str, why: str) -> InvalidPipeline:
    return InvalidPipeline(
        f"lake URI {uri!r} is not allowed: {why}.",
        hint="write `warehouse` as s3://bucket/prefix, e.g. s3://lake/flights.",
    )


def _bad_key(key: str, why: str) -> InvalidPipeline:
    shown = key if len(key) <= 200 else key[:200] + "..."
    return InvalidPipeline(
        f"object key {shown!r} is not allowed: {why}.",
        hint="build keys with tallystick.format.keys; a stored object that names this one is damaged.",
    )
