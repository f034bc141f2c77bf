"""S3Store on moto passes the part of the store contract without concurrent clients.

Not the races: moto checks a condition and then acts, without a lock (25 of 800 rounds had two or three winners when
threads were switched often), so a race without a violation proves nothing.
"""

from __future__ import annotations

import boto3
import pytest

from tallystick.store.s3 import S3Settings, S3Store
from tallystick_devstack.testing.store_contract import StoreContract


class TestS3StoreOnMoto(StoreContract):
    @pytest.fixture
    def store(self, lake_uri: str, moto_url: str, session: boto3.session.Session) -> S3Store:
        return S3Store(lake_uri, settings=S3Settings(endpoint_url=moto_url), session=session)
