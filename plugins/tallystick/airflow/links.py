"""The link on a task that opens the object that it wrote: the plan, the report or the commit record.

The objects are in the lake. If AWS_ENDPOINT_URL_S3 (or AWS_ENDPOINT_URL) is set, the link opens the object on that
server, otherwise in the AWS console.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import attrs
from airflow.sdk import BaseOperatorLink


@attrs.define()
class LakeObjectLink(BaseOperatorLink):
    """The link to the object whose address is in the operator's `linked`; computed on the worker when the task ends."""

    @property
    def name(self) -> str:
        """The text of the link."""
        return "Written object"

    @property
    def xcom_key(self) -> str:
        """The key of the XCom in which Airflow stores the address."""
        return "_link_lake_object"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the address, or an empty string if the task wrote nothing."""
        return object_page(getattr(operator, "linked", None), os.environ)


def object_page(address: str | None, environ: Mapping[str, str]) -> str:
    """Return the web address of `s3://bucket/key`, or an empty string if `address` is anything else."""
    if not address or not address.startswith("s3://"):
        return ""
    bucket, _, key = address.removeprefix("s3://").partition("/")
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        return f"{endpoint.rstrip('/')}/{quote(bucket)}/{quote(key)}"
    return (
        f"https://s3.console.aws.amazon.com/s3/object/{quote(bucket)}?prefix={quote(key, safe='')}"
    )
