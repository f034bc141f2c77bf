"""S3 servers, one of each for all tests of this folder, and a lake prefix of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import boto3
import pytest

from tallystick_devstack.testing.servers import aws_environment, ministack, moto
from tallystick_devstack.testing.versitygw import go, versitygw

BUCKET = "contract"
_numbers = itertools.count()


@pytest.fixture(scope="session")
def session() -> boto3.session.Session:
    """Return one boto3 session for all tests: each new one loads botocore's model of S3 again, a tenth of a second."""
    return boto3.session.Session(
        aws_access_key_id="test", aws_secret_access_key="test-secret", region_name="us-east-1"
    )


@pytest.fixture(scope="package")
def ministack_url(session: boto3.session.Session) -> Iterator[str]:
    with ministack() as url:
        session.client("s3", endpoint_url=url).create_bucket(Bucket=BUCKET)
        yield url


@pytest.fixture(scope="package")
def versitygw_url(session: boto3.session.Session) -> Iterator[str]:
    if go() is None:
        pytest.skip("versitygw: expected Go to build it, found none")
    with versitygw() as url:
        session.client("s3", endpoint_url=url).create_bucket(Bucket=BUCKET)
        yield url


@pytest.fixture(scope="package")
def moto_url(session: boto3.session.Session) -> Iterator[str]:
    with moto() as url:
        session.client("s3", endpoint_url=url).create_bucket(Bucket=BUCKET)
        yield url


@pytest.fixture
def lake_uri() -> str:
    """Return a prefix that no other test uses."""
    return f"s3://{BUCKET}/test-{next(_numbers)}"


def use_server(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Set boto3's environment variables for a server, as a user does."""
    for name, value in aws_environment(url).items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def on_versitygw(versitygw_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    use_server(monkeypatch, versitygw_url)
    return versitygw_url


@pytest.fixture
def on_ministack(ministack_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    use_server(monkeypatch, ministack_url)
    return ministack_url
