"""The lake as two independent readers read it: root.json by boto3, the tables by PyIceberg and again by DuckDB."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import duckdb
from pyiceberg.manifest import clear_manifest_cache
from pyiceberg.table import StaticTable

FLIGHTS, DEAD, HOURLY, ONTIME = "flights", "dead_letters", "departures_hourly", "ontime_daily"
TABLES = {"flights": (FLIGHTS, DEAD, HOURLY), "ontime": (ONTIME, DEAD)}


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeAddress:
    """The address of the lake, and the credentials to read it."""

    endpoint_url: str
    bucket: str
    prefix: str
    access_key_id: str
    secret_access_key: str
    region: str = "us-east-1"


class Objects:
    """The lake's JSON objects."""

    def __init__(self, lake: LakeAddress) -> None:
        self._lake = lake
        self._client = boto3.client(
            "s3",
            endpoint_url=lake.endpoint_url,
            aws_access_key_id=lake.access_key_id,
            aws_secret_access_key=lake.secret_access_key,
            region_name=lake.region,
        )

    def json(self, key: str) -> Any:
        """Return one object by its key, relative to the lake URI."""
        full = f"{self._lake.prefix}/{key}"
        return json.loads(
            self._client.get_object(Bucket=self._lake.bucket, Key=full)["Body"].read()
        )


def load_tables(
    db: duckdb.DuckDBPyConnection, lake: LakeAddress, root: Any, tables: Sequence[str]
) -> None:
    """Create each table twice: `t` as PyIceberg reads it, `t_scanned` as DuckDB does, both from this root."""
    for extension in ("httpfs", "avro", "iceberg"):
        db.execute(f"LOAD '{_extension(extension)}'")
    endpoint = urlsplit(lake.endpoint_url)
    db.execute(
        "CREATE SECRET lake (TYPE s3, PROVIDER config, KEY_ID '{}', SECRET '{}', REGION '{}', ENDPOINT '{}', "
        "URL_STYLE 'path', USE_SSL {})".format(
            lake.access_key_id,
            lake.secret_access_key,
            lake.region,
            endpoint.netloc,
            endpoint.scheme == "https",
        )
    )
    clear_manifest_cache()
    properties = {
        "s3.endpoint": lake.endpoint_url,
        "s3.access-key-id": lake.access_key_id,
        "s3.secret-access-key": lake.secret_access_key,
        "s3.region": lake.region,
    }
    for name in tables:
        uri = f"s3://{lake.bucket}/{lake.prefix}/{root['tables'][name]['metadata']}"
        loaded = StaticTable.from_metadata(uri, properties).scan().to_arrow()
        db.register("loaded", loaded)
        db.execute(f"CREATE TABLE {name} AS SELECT * FROM loaded")
        db.unregister("loaded")
        db.execute(f"CREATE TABLE {name}_scanned AS SELECT * FROM iceberg_scan('{uri}')")


def _extension(name: str) -> Path:
    spec = find_spec(f"duckdb_extension_{name}")
    folders = list(spec.submodule_search_locations or []) if spec else []
    version = f"v{duckdb.__version__}"
    return Path(folders[0]) / "extensions" / version / f"{name}.duckdb_extension"
