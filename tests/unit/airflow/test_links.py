"""Links of tasks: addresses that a browser can open."""

from __future__ import annotations

import pytest

from tallystick.airflow.links import object_page


@pytest.mark.parametrize(
    ("address", "environ", "page"),
    [
        (
            "s3://lake/flights/commits/0-a.json",
            {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9000/"},
            "http://127.0.0.1:9000/lake/flights/commits/0-a.json",
        ),
        (
            "s3://lake/flights/root.json",
            {},
            "https://s3.console.aws.amazon.com/s3/object/lake?prefix=flights%2Froot.json",
        ),
        ("s3://lake/a b/<c>", {"AWS_ENDPOINT_URL_S3": "http://h"}, "http://h/lake/a%20b/%3Cc%3E"),
        ("s3://lake/a", {"AWS_ENDPOINT_URL": "http://all"}, "http://all/lake/a"),
        (
            "s3://lake/a",
            {"AWS_ENDPOINT_URL": "http://all", "AWS_ENDPOINT_URL_S3": "http://s3"},
            "http://s3/lake/a",
        ),
        ("memory://lake/x", {}, ""),
        (None, {}, ""),
    ],
)
def test_page_of_an_object(address: str | None, environ: dict[str, str], page: str) -> None:
    assert object_page(address, environ) == page
