"""S3Store on ministack passes the whole store contract, also between processes."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import boto3
import pytest

from tallystick.store import Applied
from tallystick.store.open import open_store
from tallystick.store.s3 import S3Settings, S3Store
from tallystick_devstack.testing.races import increment_in_process, read_counter, start_counter
from tallystick_devstack.testing.store_contract import StoreContract, StoreRaceContract

PROCESSES = 4
INCREMENTS = 100


class TestS3StoreOnMinistack(StoreContract, StoreRaceContract):
    @pytest.fixture
    def store(self, lake_uri: str, ministack_url: str, session: boto3.session.Session) -> S3Store:
        return S3Store(
            lake_uri,
            settings=S3Settings(endpoint_url=ministack_url, connections_max=32),
            session=session,
        )

    def test_equal_bytes_have_equal_etags(self, store: S3Store) -> None:
        """Therefore every body of a swap is unique: with equal bytes, a writer two versions late would succeed."""
        first = store.create("root.json", b"A")
        assert isinstance(first, Applied)
        second = store.replace("root.json", b"B", expected=first.etag)
        assert isinstance(second, Applied)
        assert store.replace("root.json", b"A", expected=second.etag) == first
        assert isinstance(store.replace("root.json", b"stale", expected=first.etag), Applied)

    def test_a_prefix_that_begins_with_the_same_name_is_not_listed(
        self, store: S3Store, session: boto3.session.Session
    ) -> None:
        neighbour = S3Store(
            f"{store.uri}2", settings=S3Settings(endpoint_url=store.endpoint_url), session=session
        )
        neighbour.create("a", b"x")
        assert [*store.list("")] == []

    @pytest.mark.usefixtures("on_ministack")
    def test_no_increment_of_any_process_is_lost(self, store: S3Store) -> None:
        start_counter(store, "counter")
        # Spawned, not forked: a forked child would share this process's sockets.
        with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
            futures = [
                pool.submit(
                    increment_in_process, store.uri, "counter", f"process {number}", INCREMENTS
                )
                for number in range(PROCESSES)
            ]
            done = [future.result() for future in futures]
        assert read_counter(store, "counter") == {tally.writer: INCREMENTS for tally in done}
        assert sum(tally.lost for tally in done) > 0, (
            "the processes did not compete: there was no race"
        )

    @pytest.mark.usefixtures("on_ministack")
    def test_the_uri_opens_the_same_objects(self, store: S3Store) -> None:
        store.create("a", b"x")
        stored = open_store(store.uri + "/").get("a")
        assert stored is not None
        assert stored.body == b"x"
