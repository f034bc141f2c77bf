"""The buttons on a task that open what it wrote: the plan, the report, the commit record.

They are objects of the lake. Without AWS_ENDPOINT_URL_S3 (or AWS_ENDPOINT_URL) the link opens AWS's console, else the
object on that server.
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
    """Opens the object whose address the operator keeps in `linked`; computed on the worker when the task ends."""

    @property
    def name(self) -> str:
        """The button's text."""
        return "What it wrote"

    @property
    def xcom_key(self) -> str:
        """Where Airflow keeps the address."""
        return "_link_lake_object"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The address, or an empty text where the task wrote nothing."""
        return object_page(getattr(operator, "linked", None), os.environ)


def object_page(address: str | None, environ: Mapping[str, str]) -> str:
    """A browser's address of `s3://bucket/key`; empty for anything else."""
    if not address or not address.startswith("s3://"):
        return ""
    bucket, _, key = address.removeprefix("s3://").partition("/")
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        return f"{endpoint.rstrip('/')}/{quote(bucket)}/{quote(key)}"
    return (
        f"https://s3.console.aws.amazon.com/s3/object/{quote(bucket)}?prefix={quote(key, safe='')}"
    )
