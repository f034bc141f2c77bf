"""Reads the settings of a bucket: the clock of its server, and what the bucket does with objects by itself.

It sends only requests that read. Lakes do not need these requests, and many roles may not send them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from tallystick.store.answers import classify
from tallystick.store.s3 import S3Store

_FAILURES = (ClientError, BotoCoreError, ResponseParserError)
_ABSENT = frozenset(
    {
        "NoSuchLifecycleConfiguration",
        "NoSuchPublicAccessBlockConfiguration",
        "ServerSideEncryptionConfigurationNotFoundError",
    }
)
# Answers of servers that do not have a request of the S3 API.
_NOT_THERE = frozenset({"NotImplemented", "MethodNotAllowed", "XNotImplemented"})

Missing = Literal["not set", "denied", "not implemented"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTime:
    """The clock of a server in one answer: `server` is its Date header, in whole seconds; the rest is this machine's."""

    server: datetime
    sent: datetime
    received: datetime

    @property
    def ahead_s(self) -> float:
        """How many seconds this machine's clock is ahead of the server's; negative if it is behind.

        The middle of the request is compared with the middle of the header's second.
        """
        middle = self.sent + (self.received - self.sent) / 2
        return (middle - self.server).total_seconds() - 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketAnswer:
    """An answer about a setting of the bucket; `missing` is the reason if there is none."""

    body: Mapping[str, Any]
    missing: Missing | None = None


class S3Bucket(S3Store):
    """The bucket of a lake URI: what it is set to, besides the objects of the lake."""

    @property
    def bucket(self) -> str:
        """The name of the bucket."""
        return self._address.bucket

    @property
    def prefix(self) -> str:
        """The prefix of the lake, without a slash at either end."""
        return self._address.prefix

    @property
    def region(self) -> str:
        """The region to which requests are signed."""
        return str(self._reader.meta.region_name)

    @property
    def owner(self) -> str | None:
        """The account that each request requires as the bucket's owner; None if none is set."""
        return self._settings.bucket_owner

    @property
    def encryption(self) -> str | None:
        """The encryption that each written object requests; None if none is set."""
        return self._settings.encryption

    def credentials(self) -> str | None:
        """Return where boto3 found the credentials, such as `env` or `iam-role`; None if there are none."""
        signer = self._reader._request_signer  # type: ignore[attr-defined]
        found = signer._credentials
        return None if found is None else str(found.method)

    def time(self, now: Callable[[], datetime]) -> ServerTime | None:
        """List one object, and return the clocks in the answer; None if the server sends no Date.

        Raises what `list` raises. If the server refuses the request because of the clock, the clocks are returned.
        """
        sent = now()
        refused: Exception | None = None
        try:
            answer: Mapping[str, Any] = self._reader.list_objects_v2(
                **self._common, Prefix=f"{self.prefix}/", MaxKeys=1
            )
        except _FAILURES as error:
            refused = error
            answer = getattr(error, "response", {})
        found = _date(answer)
        if refused is not None:
            code = answer.get("Error", {}).get("Code", "")
            if found is None or code != "RequestTimeTooSkewed":
                self._raise(classify(refused), f"list {self.prefix + '/'!r}", refused)
        return None if found is None else ServerTime(server=found, sent=sent, received=now())

    def setting(self, request: str) -> BucketAnswer:
        """Return the answer to a request about the bucket, by its name in boto3, e.g. `get_bucket_versioning`.

        Raises the errors of the store, but not if the request is denied, unknown to the server, or nothing is set.
        """
        try:
            body = getattr(self._reader, request)(**self._common)
        except _FAILURES as error:
            missing = _missing(error)
            if missing is None:
                self._raise(classify(error), request.replace("_", " "), error)
            return BucketAnswer(body={}, missing=missing)
        return BucketAnswer(body=body)


def _missing(error: Exception) -> Missing | None:
    if not isinstance(error, ClientError):
        return None
    code = error.response.get("Error", {}).get("Code", "")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _ABSENT:
        return "not set"
    if status in (401, 403):
        return "denied"
    # A 400 may mean anything, such as a wrong region: it must not hide a rule that deletes objects.
    return "not implemented" if status in (404, 405, 501) or code in _NOT_THERE else None


def _date(answer: Mapping[str, Any]) -> datetime | None:
    text = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    if text is None:
        return None
    try:
        found = parsedate_to_datetime(str(text))
    except ValueError:
        return None
    return found.astimezone(UTC) if found.tzinfo is not None else found.replace(tzinfo=UTC)
