"""The store on S3, or on a server that speaks it, through boto3.

Endpoint, region and credentials come from boto3's own chain (`AWS_ENDPOINT_URL_S3`, `AWS_DEFAULT_REGION`,
`AWS_PROFILE`, roles, ...). botocore itself addresses a custom endpoint by path and falls back to us-east-1 where no
region is set; tests hold it to both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from tallystick.errors import SettingsError, StoreUnavailable, without_user_info
from tallystick.store import Applied, ETag, Listed, NotApplied, Outcome, Stored, Unknown
from tallystick.store.address import check_list_prefix, parse_s3_uri
from tallystick.store.answers import (
    ENDPOINT_SETTING,
    S3Answer,
    Verdict,
    explain,
    judge,
    judge_failure,
    judge_status,
)
from tallystick.store.multipart import create_in_parts

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

T = TypeVar("T")
_DELETE_KEYS_MAX = 1000  # S3 API Reference, DeleteObjects
_GET_TRIES = 3
ENCRYPTIONS = ("AES256", "aws:kms", "aws:kms:dsse")
_ABOUT_CREDENTIALS = frozenset({Verdict.NO_CREDENTIALS, Verdict.CREDENTIALS_LATE})
_ENV_PREFIX = "TALLYSTICK_S3_"
_OWNER, _ENCRYPTION, _KMS_KEY, _CHECKSUMS = (
    f"{_ENV_PREFIX}{name}" for name in ("BUCKET_OWNER", "ENCRYPTION", "KMS_KEY_ID", "CHECKSUMS")
)
_ACCOUNT = re.compile(r"[0-9]{12}")

# What a boto3 call can fail with. OSError is not here: a local file that cannot be read is the caller's.
_FAILURES = (ClientError, BotoCoreError, ResponseParserError)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """How to talk to S3, as far as boto3's own chain does not say it.

    `endpoint_url` None: boto3's chain. `bucket_owner`: an AWS account id, sent as ExpectedBucketOwner each time.
    `encryption` is sent as ServerSideEncryption with each object written, `kms_key` with it; None: the bucket's default.
    `checksums`: whether boto3 adds and checks checksums of its own wherever S3 knows them. A file larger than
    `one_put_bytes_max` goes in parts of `part_bytes` (S3 takes none below 5 MiB but the last, and advises parts from
    100 MB on).
    """

    endpoint_url: str | None = None
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 20.0
    read_attempts_max: int = 4
    connections_max: int = 10
    one_put_bytes_max: int = 100 << 20
    part_bytes: int = 32 << 20
    bucket_owner: str | None = None
    encryption: str | None = None
    kms_key: str | None = None
    checksums: bool = False

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> S3Settings:
        """Read what TALLYSTICK_S3_* say; raises SettingsError naming the variable and what it may hold."""
        known = {name for name in environ if name.startswith(_ENV_PREFIX) and environ[name]}
        if unknown := sorted(known - {_OWNER, _ENCRYPTION, _KMS_KEY, _CHECKSUMS}):
            raise _unfit(unknown[0], "is not a setting", "remove it, or correct its name.")
        words = {name: environ[name].strip() for name in known}
        owner, encryption = words.get(_OWNER), words.get(_ENCRYPTION)
        if owner is not None and not _ACCOUNT.fullmatch(owner):
            raise _unfit(_OWNER, "is no AWS account id", "use its 12 digits.")
        if encryption is not None and encryption not in ENCRYPTIONS:
            raise _unfit(_ENCRYPTION, f"is {encryption!r}", f"use {', '.join(ENCRYPTIONS)}.")
        if _KMS_KEY in words and not (encryption or "").startswith("aws:kms"):
            raise _unfit(_KMS_KEY, f"is set without {_ENCRYPTION}=aws:kms", "set both.")
        checksums = words.get(_CHECKSUMS, "off")
        if checksums not in ("on", "off"):
            raise _unfit(_CHECKSUMS, f"is {checksums!r}", "use on or off.")
        return cls(
            bucket_owner=owner,
            encryption=encryption,
            kms_key=words.get(_KMS_KEY),
            checksums=checksums == "on",
        )

    def answering_within(self, seconds: float) -> S3Settings:
        """Return settings by which a read ends within about this time, in all its tries, if the server is silent."""
        one_try_s = seconds / (2 * _GET_TRIES)
        return replace(
            self,
            connect_timeout_s=min(self.connect_timeout_s, one_try_s),
            read_timeout_s=min(self.read_timeout_s, one_try_s),
            read_attempts_max=2,
        )


def _unfit(name: str, why: str, hint: str) -> SettingsError:
    return SettingsError(f"the environment variable {name} {why}.", hint=hint)


class S3Store:
    """One prefix of one bucket. Thread-safe; not to be shared across a fork (open a new one in the child).

    Writes go through a client of their own with one HTTP attempt. With boto3's default retries a PUT that landed and
    whose reply was lost is sent again and answered 412: our own success would look like a lost race.
    """

    def __init__(
        self,
        uri: str,
        *,
        settings: S3Settings | None = None,
        session: boto3.session.Session | None = None,
    ) -> None:
        """Make the clients; no request to S3 is sent. Raises InvalidPipeline (uri) and SettingsError."""
        self._address = parse_s3_uri(uri)
        self._settings = settings or S3Settings()
        make = _client_factory(session, self._settings)
        self._writer = make(1)
        self._reader = make(self._settings.read_attempts_max)
        self._endpoint_url = self._reader.meta.endpoint_url
        self._common: dict[str, Any] = {"Bucket": self._address.bucket}
        if self._settings.bucket_owner is not None:
            self._common["ExpectedBucketOwner"] = self._settings.bucket_owner
        self._written: dict[str, Any] = {}
        if self._settings.encryption is not None:
            self._written["ServerSideEncryption"] = self._settings.encryption
        if self._settings.kms_key is not None:
            self._written["SSEKMSKeyId"] = self._settings.kms_key

    def __repr__(self) -> str:
        return f"S3Store({self.uri} at {self._endpoint_url})"

    @property
    def uri(self) -> str:
        return self._address.uri

    @property
    def endpoint_url(self) -> str:
        """Where requests go, as boto3 resolved it."""
        return self._endpoint_url

    def get(self, key: str) -> Stored | None:
        full_key = self._address.full_key(key)
        for left in reversed(range(_GET_TRIES)):
            try:
                answer = self._reader.get_object(**self._common, Key=full_key)
                # Body and ETag of one response: two requests could straddle a swap.
                return Stored(body=answer["Body"].read(), etag=ETag(answer["ETag"]))
            except _FAILURES as error:
                judged = judge(error)
                if judged.verdict is Verdict.NO_OBJECT:
                    return None
                # boto3 tries again until the headers are there; a body that breaks off afterwards is ours to retry.
                if (
                    left
                    and judged.verdict is Verdict.UNKNOWN
                    and not isinstance(error, ClientError)
                ):
                    continue
                self._raise(judged, f"read {full_key!r}", error)
        raise AssertionError("the last try returns or raises")

    def create(self, key: str, body: bytes | Path) -> Outcome:
        """As the port says. Safe to repeat: where an earlier try landed, S3 answers 412 and this answers `exists`."""
        full_key = self._address.full_key(key)
        exists = NotApplied(because="exists")
        if not isinstance(body, Path):
            return self._put(full_key, body, exists, IfNoneMatch="*")
        if body.stat().st_size > self._settings.one_put_bytes_max:
            return self._write(full_key, lambda: self._in_parts(full_key, body), exists)
        with body.open("rb") as stream:
            return self._put(full_key, stream, exists, IfNoneMatch="*")

    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        """As the port says. Safe to repeat with the same bytes: where an earlier try landed, the ETag has moved."""
        return self._put(
            self._address.full_key(key), body, NotApplied(because="changed"), IfMatch=expected
        )

    def list(self, prefix: str) -> Iterator[Listed]:
        base = f"{self._address.prefix}/"
        request: dict[str, Any] = {**self._common, "Prefix": base + check_list_prefix(prefix)}
        while True:
            try:
                page = self._reader.list_objects_v2(**request)
            except _FAILURES as error:
                self._raise(judge(error), f"list {request['Prefix']!r}", error)
            for line in page.get("Contents", ()):
                yield Listed(
                    key=line["Key"].removeprefix(base),
                    size_bytes=line["Size"],
                    etag=ETag(line["ETag"]),
                    modified=line["LastModified"].astimezone(UTC),
                )
            if not page["IsTruncated"]:
                return
            request["ContinuationToken"] = page["NextContinuationToken"]

    def delete(self, keys: Iterable[str]) -> None:
        """As the port says, 1000 keys a request. Safe to repeat: S3 counts an absent object as deleted."""
        full_keys = (self._address.full_key(key) for key in keys)
        while batch := [*islice(full_keys, _DELETE_KEYS_MAX)]:
            wanted = f"delete {len(batch)} objects, the first of them {batch[0]!r}"
            try:
                answer = self._reader.delete_objects(
                    **self._common,
                    Delete={"Objects": [{"Key": key} for key in batch], "Quiet": True},
                )
            except _FAILURES as error:
                self._raise(judge(error), wanted, error)
            failed = [line for line in answer.get("Errors", ()) if line.get("Code") != "NoSuchKey"]
            if failed:
                # A 200 that carries errors of single keys; they have codes, but no statuses.
                code = failed[0].get("Code", "")
                status = 403 if code == "AccessDenied" else 500
                judged = S3Answer(
                    verdict=judge_status(status, code),
                    text=f"{code or 'no code'} for {len(failed)} of them",
                )
                self._raise(judged, wanted, None)

    def _put(
        self, full_key: str, body: bytes | IO[bytes], refused: NotApplied, **condition: str
    ) -> Outcome:
        """One PutObject, one attempt. `refused` is what a 412 means for this condition."""
        # Annotated as Any: the stubs cannot know which of the two conditions is in the dictionary.
        put: Callable[..., Any] = self._writer.put_object
        return self._write(
            full_key,
            lambda: put(**self._common, **self._written, Key=full_key, Body=body, **condition),
            refused,
            missing=NotApplied(because="missing") if "IfMatch" in condition else None,
        )

    def _in_parts(self, full_key: str, path: Path) -> Mapping[str, Any]:
        return create_in_parts(
            path,
            once=self._writer,
            patient=self._reader,
            place={**self._common, "Key": full_key},
            written=self._written,
            part_bytes=self._settings.part_bytes,
            checksums=self._settings.checksums,
        )

    def _write(
        self,
        full_key: str,
        send: Callable[[], Mapping[str, Any]],
        refused: NotApplied,
        missing: NotApplied | None = None,
    ) -> Outcome:
        """What the answer to a conditional write proves; `missing` is what "no such object" means for it."""
        try:
            answer = send()
        except _FAILURES as error:
            judged = judge(error)
            match judged.verdict:
                case Verdict.PRECONDITION:
                    return refused
                case Verdict.NO_OBJECT if missing is not None:
                    return missing
                case Verdict.UNKNOWN | Verdict.NO_OBJECT:
                    return Unknown(because=judged.text)
                case _:
                    self._raise(judged, f"write {full_key!r}", error)
        etag = answer.get("ETag")
        # Without a token nobody could replace the object; a second try is answered 412 and tells more.
        return Applied(etag=ETag(etag)) if etag else Unknown(because="HTTP 200 without an ETag")

    def _raise(self, judged: S3Answer, action: str, cause: Exception | None) -> NoReturn:
        error = explain(
            judged, action=action, bucket=self._address.bucket, endpoint_url=self._endpoint_url
        )
        # botocore's texts about credentials can quote what a credential process printed: none of that in a traceback.
        quiet = judged.verdict in _ABOUT_CREDENTIALS | {Verdict.DENIED}
        try:
            raise error from (None if quiet else cause)
        finally:
            if quiet:
                error.__context__ = (
                    None  # Python sets it from the caller's handler, whatever `from` says
                )


def _client_factory(
    session: boto3.session.Session | None, settings: S3Settings
) -> Callable[[int], S3Client]:
    """Return a maker of S3 clients by number of HTTP attempts; raises SettingsError when boto3 cannot be set up."""
    # boto3's shared default session may not be used from several threads at once; this one is ours.
    own = session or _usable(boto3.session.Session)

    checksums: Any = "when_supported" if settings.checksums else "when_required"

    def make(attempts_max: int) -> S3Client:
        config = Config(
            retries={"mode": "standard", "total_max_attempts": attempts_max},
            connect_timeout=settings.connect_timeout_s,
            read_timeout=settings.read_timeout_s,
            max_pool_connections=settings.connections_max,
            tcp_keepalive=True,
            user_agent_extra="tallystick",
            # boto3 >= 1.36 would add CRC trailers by itself, which other servers refuse or even store inside the object
            # (boto3#4392, #4435). Nothing is lost: where no checksum is sent, botocore signs the body's SHA-256, so a
            # body damaged on its way is refused all the same.
            request_checksum_calculation=checksums,
            response_checksum_validation=checksums,
        )
        client: S3Client = _usable(
            lambda: own.client("s3", endpoint_url=settings.endpoint_url, config=config)
        )
        # A password with a slash is no user info to urllib, which takes the user for the host.
        if "@" in client.meta.endpoint_url:
            raise SettingsError(
                f"the S3 endpoint {without_user_info(client.meta.endpoint_url)} carries a user name or a password.",
                hint=f"take them out of {ENDPOINT_SETTING}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
            )
        return client

    return make


def _usable(make: Callable[[], T]) -> T:
    """Return what boto3 makes.

    Raises SettingsError where its settings do not let it, StoreUnavailable where its credentials' source does not answer.
    """
    verdict = None
    try:
        return make()
    except BotoCoreError as error:
        verdict = judge_failure(error)
        # Texts about credentials can quote what a credential process printed.
        reason = type(error).__name__ if verdict in _ABOUT_CREDENTIALS else str(error)
    except ValueError:
        # Its text quotes the endpoint, which may hold a password; so it is no context of ours either.
        reason = "the endpoint is no URL"
    if verdict is Verdict.CREDENTIALS_LATE:
        raise StoreUnavailable(
            f"the source of the credentials for S3 did not answer ({reason}).",
            hint="try again; if it stays so, check the machine's role or the credential_process of AWS_PROFILE.",
        )
    raise SettingsError(
        f"boto3 cannot be set up for S3: {reason}.",
        hint=f"check {ENDPOINT_SETTING}, AWS_PROFILE, AWS_DEFAULT_REGION and the file ~/.aws/config.",
    )
