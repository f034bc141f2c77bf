"""The ledger of calls on a real S3 server: notes are created once, listed by key, and read by the next publisher."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import boto3
import pytest

from support.call_publisher import ROWS, http, mail
from support.call_receiver import Endpoint, receiver
from support.mail_server import Post, mail_server
from tallystick.errors import OutputUnavailable
from tallystick.format import keys
from tallystick.store.s3 import S3Settings, S3Store
from unit.outputs.claims_on_calls import BY_KEY, acted, publish
from unit.outputs.publications import publication


@pytest.fixture
def store(lake_uri: str, ministack_url: str, session: boto3.session.Session) -> S3Store:
    """Return the store of a lake."""
    settings = S3Settings(endpoint_url=ministack_url, connections_max=8)
    return S3Store(lake_uri, settings=settings, session=session)


@pytest.mark.parametrize("how", [{}, BY_KEY])
def test_calls_continue_after_those_of_the_last_publisher(
    store: S3Store, how: dict[str, Any]
) -> None:
    endpoint = Endpoint(faults={1: "act then drop", 4: "500"})
    with receiver(endpoint) as url:
        for _ in range(2):
            with pytest.raises(OutputUnavailable):
                publish(http(url, store, patience_s=0.0, **how), publication(ROWS))
        for _ in range(2):
            publish(http(url, store, **how), publication(ROWS), resumed=True)
    assert acted(endpoint) == sorted(row["k"] for row in ROWS)
    assert len(endpoint.calls) == len(ROWS) + 2
    assert Counter(keys.kind(listed.key) for listed in store.list("")).keys() == {"call"}


def test_two_concurrent_publishers_send_each_email_once(store: S3Store) -> None:
    post, errors = Post(), list[BaseException]()

    def publish_all(port: int) -> None:
        try:
            publish(mail(port, store, doubt_s=60.0), publication(ROWS))
        except Exception as error:  # noqa: BLE001 - reported by the thread that waits for this one
            errors.append(error)

    with mail_server(post) as port:
        threads = [threading.Thread(target=publish_all, args=(port,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert not errors, errors
    assert sorted(post.to) == [row["to"] for row in ROWS]
