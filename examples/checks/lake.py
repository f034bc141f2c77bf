"""A lake as an independent reader: its objects by boto3, its tables by PyIceberg, starting from root.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import boto3
from pyiceberg.manifest import clear_manifest_cache
from pyiceberg.table import StaticTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """A lake on an S3 server, with the credentials to read it."""

    endpoint_url: str
    bucket: str
    prefix: str
    access_key_id: str
    secret_access_key: str
    region: str

    def listed(self) -> set[str]:
        """Return every key below the lake URI, relative to it."""
        pages = self._client().get_paginator("list_objects_v2")
        start = f"{self.prefix}/"
        return {
            listed["Key"].removeprefix(start)
            for page in pages.paginate(Bucket=self.bucket, Prefix=start)
            for listed in page.get("Contents", [])
        }

    def json(self, key: str) -> Any:
        """Return one JSON object."""
        answer = self._client().get_object(Bucket=self.bucket, Key=f"{self.prefix}/{key}")
        return json.loads(answer["Body"].read())

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table in the current version of root.json."""
        metadata = self.json("root.json")["tables"][table]["metadata"]
        return self.rows_of(metadata)

    def table(self, metadata: str) -> StaticTable:
        """Return the table of a metadata file."""
        clear_manifest_cache()
        return StaticTable.from_metadata(
            f"s3://{self.bucket}/{self.prefix}/{metadata}",
            {
                "s3.endpoint": self.endpoint_url,
                "s3.access-key-id": self.access_key_id,
                "s3.secret-access-key": self.secret_access_key,
                "s3.region": self.region,
            },
        )

    def rows_of(self, metadata: str) -> list[dict[str, Any]]:
        """Return all rows of the table of a metadata file."""
        rows: list[dict[str, Any]] = self.table(metadata).scan().to_arrow().to_pylist()
        return rows

    def records(self) -> list[dict[str, Any]]:
        """Return the commit records from the first to that in root.json: each names the tables after its commit."""
        records: list[dict[str, Any]] = []
        key = self.json("root.json")["record"]
        while key is not None:
            records.append(self.json(key))
            key = records[-1]["parent"]
        return records[::-1]

    def key(self, uri: str) -> str:
        """Return the key of a URI inside the lake."""
        return uri.removeprefix(f"s3://{self.bucket}/{self.prefix}/")

    def _client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key,
            region_name=self.region,
        )
