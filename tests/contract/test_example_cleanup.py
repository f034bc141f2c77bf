"""The check of the example `cleanup` on a real S3 server: its live objects are those that gc leaves, and no others."""

from __future__ import annotations

from datetime import timedelta

import boto3
import pytest

from examples.cleanup.check import Lake, bucket_difference, live_keys
from support.small_lake import SmallLake, good_lake
from tallystick.format import keys
from tallystick.lake import Lake as OurLake
from tallystick.operations.gc import collect
from tallystick.store.s3 import S3Store
from tallystick.tables.reach import IcebergReach
from tallystick_devstack.testing.servers import aws_environment


@pytest.fixture
def small(on_ministack: str, lake_uri: str) -> SmallLake:
    """Return a lake with replaced rows, a pending grant and a staged attempt that lost, collected without grace."""
    small = good_lake(S3Store(lake_uri))
    collect(
        OurLake(small.store, small.runtime, proven=True),
        IcebergReach(small.store),
        delete=True,
        reader_grace=timedelta(0),
    )
    return small


@pytest.fixture
def lake(small: SmallLake, on_ministack: str) -> Lake:
    """Return the same lake as the check opens it."""
    environ = aws_environment(on_ministack)
    bucket, _, prefix = small.store.uri.removeprefix("s3://").partition("/")
    return Lake(
        endpoint_url=on_ministack,
        bucket=bucket,
        prefix=prefix,
        access_key_id=environ["AWS_ACCESS_KEY_ID"],
        secret_access_key=environ["AWS_SECRET_ACCESS_KEY"],
        region="us-east-1",
    )


def difference(lake: Lake) -> str | None:
    """Return the difference that the check finds in the bucket."""
    return bucket_difference(lake.listed(), live_keys(lake, lake.json("root.json")))


def test_after_gc_the_bucket_has_exactly_the_live_objects(lake: Lake) -> None:
    assert difference(lake) is None
    assert len(lake.listed()) > 10


def test_an_unreachable_and_a_lost_object_are_each_named(
    lake: Lake, small: SmallLake, session: boto3.session.Session
) -> None:
    client = session.client("s3", endpoint_url=lake.endpoint_url)
    unreachable = small.data_files("events")[0].replace("-", "-0", 1)
    client.put_object(Bucket=lake.bucket, Key=f"{lake.prefix}/{unreachable}", Body=b"")
    assert difference(lake) == f"1 objects that nothing reaches, e.g. {unreachable}"
    (record, *_) = small.keys(keys.COMMITS_PREFIX)
    table = small.data_files("per_kind")[0]
    # The data file is reached by Iceberg's manifests, the report by the chain of records.
    report = next(key for key in small.keys(keys.ATTEMPTS_PREFIX))
    client.delete_object(Bucket=lake.bucket, Key=f"{lake.prefix}/{report}")
    assert difference(lake) == f"1 live objects are missing, e.g. {report}"
    client.delete_object(Bucket=lake.bucket, Key=f"{lake.prefix}/{table}")
    assert str(difference(lake)).startswith("2 live objects are missing")
    assert record in lake.listed()
