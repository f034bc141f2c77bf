"""The store on S3, or on a server with the S3 API, through boto3.

Endpoint, region and credentials come from boto3's own chain (`AWS_ENDPOINT_URL_S3`, `AWS_DEFAULT_REGION`,
`AWS_PROFILE`, roles, ...). botocore uses path-style addresses for a custom endpoint, and us-east-1 if no region is set.
Tests check both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC
from functools import cache
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, TypeVar

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.loaders import Loader, create_loader
from botocore.parsers import ResponseParserError

from tallystick.errors import SettingsError, StoreUnavailable, without_user_info
from tallystick.store import Applied, ETag, Listed, NotApplied, Outcome, Stored, Unknown
from tallystick.store.address import check_list_prefix, parse_s3_uri
from tallystick.store.answers import (
    ENDPOINT_SETTING,
    S3Answer,
    Verdict,
    classify,
    classify_failure,
    classify_status,
    explain,
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

# The errors of a boto3 call. OSError is not one of them: it means that a local file cannot be read.
_FAILURES = (ClientError, BotoCoreError, ResponseParserError)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """The settings of S3 that are not part of boto3's own chain.

    `endpoint_url`: None means boto3's chain. `bucket_owner`: an AWS account id, sent as ExpectedBucketOwner in each
    request. `encryption` is sent as ServerSideEncryption with each written object, and `kms_key` with it; None means the
    bucket's default. `checksums`: if True, boto3 adds and checks its own checksums in each request that supports them.
    A file larger than `one_put_bytes_max` is uploaded in parts of `part_bytes`. (In S3, each part but the last has at
    least 5 MiB; S3 advises multipart uploads from 100 MB on.)
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
        """Read the variables TALLYSTICK_S3_*. Raises SettingsError with the variable and its allowed values."""
        known = {name for name in environ if name.startswith(_ENV_PREFIX) and environ[name]}
        names = {_OWNER, _ENCRYPTION, _KMS_KEY, _CHECKSUMS}
        if unknown := sorted(known - names):
            raise _invalid(
                unknown[0],
                f"expected one of {', '.join(sorted(names))}, found another name",
                "remove it, or correct its name.",
            )
        settings = {name: environ[name].strip() for name in known}
        owner, encryption = settings.get(_OWNER), settings.get(_ENCRYPTION)
        if owner is not None and not _ACCOUNT.fullmatch(owner):
            raise _invalid(
                _OWNER, f"expected an AWS account id of 12 digits, found {owner!r}", "correct it."
            )
        if encryption is not None and encryption not in ENCRYPTIONS:
            raise _invalid(
                _ENCRYPTION,
                f"expected one of {', '.join(ENCRYPTIONS)}, found {encryption!r}",
                "set one of these.",
            )
        if _KMS_KEY in settings and not (encryption or "").startswith("aws:kms"):
            raise _invalid(
                _KMS_KEY,
                f"expected {_ENCRYPTION}=aws:kms with it, found {encryption or 'nothing'}",
                "set both.",
            )
        checksums = settings.get(_CHECKSUMS, "off")
        if checksums not in ("on", "off"):
            raise _invalid(
                _CHECKSUMS, f"expected 'on' or 'off', found {checksums!r}", "set one of these."
            )
        return cls(
            bucket_owner=owner,
            encryption=encryption,
            kms_key=settings.get(_KMS_KEY),
            checksums=checksums == "on",
        )

    def answering_within(self, seconds: float) -> S3Settings:
        """Return settings with which a read ends within about `seconds`, over all its tries, if the server is silent."""
        one_try_s = seconds / (2 * _GET_TRIES)
        return replace(
            self,
            connect_timeout_s=min(self.connect_timeout_s, one_try_s),
            read_timeout_s=min(self.read_timeout_s, one_try_s),
            read_attempts_max=2,
        )


def _invalid(name: str, why: str, hint: str) -> SettingsError:
    return SettingsError(f"environment variable {name}: {why}.", hint=hint)


class S3Store:
    """A store on one prefix of one bucket. It is thread-safe. After a fork, open a new one in the child.

    Writes use a separate client with one HTTP attempt. With boto3's default retries, if a PUT lands and its response is
    lost, boto3 sends it again and gets a 412: the successful write would look like a lost race.
    """

    def __init__(
        self,
        uri: str,
        *,
        settings: S3Settings | None = None,
        reading: S3Settings | None = None,
        session: boto3.session.Session | None = None,
    ) -> None:
        """Create the clients. No request is sent to S3. Raises InvalidPipeline if `uri` is not allowed, SettingsError.

        `reading`: other settings of time and attempts for reading and listing objects.
        """
        self._address = parse_s3_uri(uri)
        self._settings = settings or S3Settings()
        make = _client_factory(session, self._settings)
        self._writer = make(1)
        # For requests that change something and may be repeated: deletes, and the parts of an upload.
        self._patient = make(self._settings.read_attempts_max)
        self._reader = self._patient
        if reading is not None and reading != self._settings:
            self._reader = _client_factory(session, reading)(reading.read_attempts_max)
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
        """The endpoint URL that boto3 resolved."""
        return self._endpoint_url

    def get(self, key: str) -> Stored | None:
        full_key = self._address.full_key(key)
        for left in reversed(range(_GET_TRIES)):
            try:
                answer = self._reader.get_object(**self._common, Key=full_key)
                # Body and ETag are from one response: between two requests, the object could be swapped.
                return Stored(body=answer["Body"].read(), etag=ETag(answer["ETag"]))
            except _FAILURES as error:
                failure = classify(error)
                if failure.verdict is Verdict.NO_OBJECT:
                    return None
                # boto3 retries only until the headers arrive. If the body then breaks off, the request is retried here.
                if (
                    left
                    and failure.verdict is Verdict.UNKNOWN
                    and not isinstance(error, ClientError)
                ):
                    continue
                self._raise(failure, f"read {full_key!r}", error)
        raise AssertionError("the last try returns or raises")

    def create(self, key: str, body: bytes | Path) -> Outcome:
        """Implement `Store.create`.

        Safe to repeat: if an earlier try landed, S3 returns 412 and this returns `exists`.
        """
        full_key = self._address.full_key(key)
        exists = NotApplied(because="exists")
        if not isinstance(body, Path):
            return self._put(full_key, body, exists, IfNoneMatch="*")
        if body.stat().st_size > self._settings.one_put_bytes_max:
            return self._write(full_key, lambda: self._in_parts(full_key, body), exists)
        with body.open("rb") as stream:
            return self._put(full_key, stream, exists, IfNoneMatch="*")

    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        """Implement `Store.replace`. Safe to repeat with the same bytes: if an earlier try landed, the ETag differs."""
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
                self._raise(classify(error), f"list {request['Prefix']!r}", error)
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
        """Implement `Store.delete`, with 1000 keys per request. Safe to repeat: S3 counts an absent object as deleted."""
        full_keys = (self._address.full_key(key) for key in keys)
        while batch := [*islice(full_keys, _DELETE_KEYS_MAX)]:
            wanted = f"delete {len(batch)} objects, the first of them {batch[0]!r}"
            try:
                answer = self._patient.delete_objects(
                    **self._common,
                    Delete={"Objects": [{"Key": key} for key in batch], "Quiet": True},
                )
            except _FAILURES as error:
                self._raise(classify(error), wanted, error)
            failed = [line for line in answer.get("Errors", ()) if line.get("Code") != "NoSuchKey"]
            if failed:
                # The response is a 200 with errors of single keys. These errors have codes, but no statuses.
                code = failed[0].get("Code", "")
                status = 403 if code == "AccessDenied" else 500
                failure = S3Answer(
                    verdict=classify_status(status, code),
                    text=f"{code or 'no code'} for {len(failed)} of them",
                )
                self._raise(failure, wanted, None)

    def _put(
        self, full_key: str, body: bytes | IO[bytes], refused: NotApplied, **condition: str
    ) -> Outcome:
        """Send one PutObject in one attempt. `refused`: the outcome if the response is a 412."""
        # Annotated as Any: the stubs cannot express which of the two conditions is in the dictionary.
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
            patient=self._patient,
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
        """Send a conditional write and return its outcome.

        `refused` is for a 412. `missing` is for a missing object; if it is None, the outcome is `Unknown`.
        """
        try:
            answer = send()
        except _FAILURES as error:
            failure = classify(error)
            match failure.verdict:
                case Verdict.PRECONDITION:
                    return refused
                case Verdict.NO_OBJECT if missing is not None:
                    return missing
                case Verdict.UNKNOWN | Verdict.NO_OBJECT:
                    return Unknown(because=failure.text)
                case _:
                    self._raise(failure, f"write {full_key!r}", error)
        etag = answer.get("ETag")
        # Without an ETag the object could not be replaced. The next try of the caller gets a 412, which is certain.
        return Applied(etag=ETag(etag)) if etag else Unknown(because="HTTP 200 without an ETag")

    def _raise(self, failure: S3Answer, action: str, cause: Exception | None) -> NoReturn:
        error = explain(
            failure, action=action, bucket=self._address.bucket, endpoint_url=self._endpoint_url
        )
        # botocore's messages about credentials can quote the output of a credential process. Keep them out of tracebacks.
        hides_cause = failure.verdict in _ABOUT_CREDENTIALS | {Verdict.DENIED}
        try:
            raise error from (None if hides_cause else cause)
        finally:
            if hides_cause:
                error.__context__ = (
                    None  # Python sets it from the caller's handler, regardless of `from`
                )


def _client_factory(
    session: boto3.session.Session | None, settings: S3Settings
) -> Callable[[int], S3Client]:
    """Return a function that creates an S3 client for a number of HTTP attempts.

    Raises SettingsError or StoreUnavailable as `_usable`, and the function SettingsError if the endpoint contains a user.
    """
    # boto3's shared default session must not be used by several threads at the same time, so create another one.
    own = session or _usable(_new_session)
    checksums: Any = "when_supported" if settings.checksums else "when_required"

    def make(attempts_max: int) -> S3Client:
        config = Config(
            retries={"mode": "standard", "total_max_attempts": attempts_max},
            connect_timeout=settings.connect_timeout_s,
            read_timeout=settings.read_timeout_s,
            max_pool_connections=settings.connections_max,
            tcp_keepalive=True,
            user_agent_extra="tallystick",
            # By default, boto3 >= 1.36 adds CRC trailers, which other servers refuse or even store inside the object
            # (boto3#4392, #4435). They are not needed: if no checksum is sent, botocore signs the SHA-256 of the body, so
            # the server refuses a damaged body.
            request_checksum_calculation=checksums,
            response_checksum_validation=checksums,
        )
        client: S3Client = _usable(
            lambda: own.client("s3", endpoint_url=settings.endpoint_url, config=config)
        )
        # Search for "@" in the text: if a password contains a slash, urllib does not parse it as user info.
        if "@" in client.meta.endpoint_url:
            raise SettingsError(
                f"S3 endpoint {without_user_info(client.meta.endpoint_url)}: expected no user name or password, "
                "found one.",
                hint=f"remove them from {ENDPOINT_SETTING}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
            )
        return client

    return make


def _new_session() -> boto3.session.Session:
    """Return a session with its own credentials and the process's parsed models of the S3 API. Raises BotoCoreError."""
    core = botocore.session.get_session()
    session = boto3.session.Session(botocore_session=core)
    # After boto3, which adds a folder to the session's loader: the shared one would grow with each store.
    core.register_component("data_loader", _models(core.get_config_variable("data_path")))
    return session


@cache
def _models(folders: str | None) -> Loader:
    """Return a loader that keeps the models it has parsed: without it, each store parses them again, for about 50 ms.

    `folders`: boto3's setting AWS_DATA_PATH. Only the models are shared, never credentials.
    """
    return create_loader(folders)


def _usable(make: Callable[[], T]) -> T:
    """Call `make` and return its result.

    Raises SettingsError if boto3 refuses its settings, StoreUnavailable if the credentials' source does not respond.
    """
    verdict = None
    try:
        return make()
    except BotoCoreError as error:
        verdict = classify_failure(error)
        # Messages about credentials can quote the output of a credential process.
        reason = type(error).__name__ if verdict in _ABOUT_CREDENTIALS else str(error)
    except ValueError:
        # The message contains the endpoint, which may contain a password. So it is not the new error's context either.
        reason = "the endpoint is not a URL"
    if verdict is Verdict.CREDENTIALS_LATE:
        raise StoreUnavailable(
            f"the source of the credentials for S3 did not answer ({reason}).",
            hint="try again; if it persists, check the machine's role or the credential_process of AWS_PROFILE.",
        )
    raise SettingsError(
        f"boto3 cannot be set up for S3: {reason}.",
        hint=f"check {ENDPOINT_SETTING}, AWS_PROFILE, AWS_DEFAULT_REGION and the file ~/.aws/config.",
    )
