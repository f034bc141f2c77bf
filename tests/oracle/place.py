"""The addresses of a lake and its brokers, and the lake's objects as any S3 client returns them."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

ROOT = "root.json"
# A session loads the S3 service description once, which costs more than most audits. Creating clients in two threads at
# the same time is unsafe.
_SESSION = boto3.session.Session()
_CLIENT_LOCK = threading.Lock()
_ABSENT = ("404", "NoSuchKey", "NotFound")


@dataclass(frozen=True, slots=True)
class Place:
    """One lake root (`s3://bucket/prefix`, no slash at either end of the prefix) and the brokers behind it."""

    endpoint_url: str
    bucket: str
    prefix: str
    access_key: str
    secret_key: str = field(repr=False)
    bootstrap: str
    # Settings of librdkafka; empty if the brokers accept every client.
    login: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Listed:
    """One entry of a listing. The ETag has no quotes."""

    size_bytes: int
    etag: str


class Objects:
    """The objects below a lake root, by keys relative to it. Not to be shared between threads."""

    def __init__(self, place: Place, *, timeout_s: float = 20.0, attempts: int = 4) -> None:
        self._bucket, self._prefix = place.bucket, f"{place.prefix}/"
        config = Config(
            connect_timeout=timeout_s,
            read_timeout=timeout_s,
            retries={"mode": "standard", "total_max_attempts": attempts},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path"},
        )
        with _CLIENT_LOCK:
            self._client = _SESSION.client(
                "s3",
                endpoint_url=place.endpoint_url,
                region_name="us-east-1",
                aws_access_key_id=place.access_key,
                aws_secret_access_key=place.secret_key,
                config=config,
            )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def get(self, key: str, *, unless: str | None = None) -> tuple[bytes, str] | None:
        """Return an object and its ETag. None if it does not exist or if its ETag is still `unless`."""
        known = {} if unless is None else {"IfNoneMatch": f'"{unless}"'}
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + key, **known)
            return answer["Body"].read(), answer["ETag"].strip('"')
        except ClientError as error:
            status = str(error.response["ResponseMetadata"]["HTTPStatusCode"])
            if status == "304":
                return None
            if error.response["Error"]["Code"] in _ABSENT or status == "404":
                if unless is not None:
                    raise FileNotFoundError(key) from error
                return None
            raise

    def body(self, key: str) -> bytes:
        """Return an object that must exist. Raises FileNotFoundError with its key."""
        stored = self.get(key)
        if stored is None:
            raise FileNotFoundError(key)
        return stored[0]

    def json(self, key: str) -> Any:
        """Return a JSON object that must exist."""
        return json.loads(self.body(key))

    def find(self, key: str) -> Any:
        """Return a JSON object, None if it does not exist."""
        stored = self.get(key)
        return None if stored is None else json.loads(stored[0])

    def head(self, key: str) -> Listed | None:
        """Return size and ETag of an object, None if it does not exist."""
        try:
            answer = self._client.head_object(Bucket=self._bucket, Key=self._prefix + key)
        except ClientError as error:
            if str(error.response["ResponseMetadata"]["HTTPStatusCode"]) == "404":
                return None
            raise
        return Listed(answer["ContentLength"], answer["ETag"].strip('"'))

    def listing(self) -> dict[str, Listed]:
        """Return every object below the prefix."""
        objects: dict[str, Listed] = {}
        pages = self._client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix):
            for line in page.get("Contents", ()):
                key = line["Key"].removeprefix(self._prefix)
                objects[key] = Listed(line["Size"], line["ETag"].strip('"'))
        return objects

    def key_of(self, location: str) -> str:
        """Return the relative key of an `s3://` location. Raises ValueError for a location outside the lake."""
        base = f"s3://{self._bucket}/{self._prefix}"
        if not location.startswith(base):
            raise ValueError(f"{location} is outside {base}")
        return location.removeprefix(base)
