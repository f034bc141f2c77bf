"""S3Store on versitygw passes the whole store contract, also between processes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import boto3
import pytest

from support.canaries import error_text
from tallystick.errors import SettingsError
from tallystick.store import Applied, ETag, Unknown
from tallystick.store.probe import prove_conditional_writes
from tallystick.store.s3 import S3Settings, S3Store
from tallystick_devstack.testing.races import increment_in_process, read_counter, start_counter
from tallystick_devstack.testing.store_contract import StoreContract, StoreRaceContract

PROCESSES = 4
INCREMENTS = 100


class TestS3StoreOnVersitygw(StoreContract, StoreRaceContract):
    @pytest.fixture
    def store(self, lake_uri: str, versitygw_url: str, session: boto3.session.Session) -> S3Store:
        return S3Store(
            lake_uri,
            settings=S3Settings(endpoint_url=versitygw_url, connections_max=32),
            session=session,
        )

    def test_an_object_next_to_a_folder_of_its_name(self, store: S3Store) -> None:
        """Overrides the contract: a folder cannot be a file. The server returns 409, which proves nothing."""
        first = store.create("a", b"x")
        assert isinstance(first, Applied)
        outcome = store.create("a/1", b"y")
        assert isinstance(outcome, Unknown)
        assert "409" in outcome.because
        stored = store.get("a")
        assert stored is not None
        assert (stored.body, stored.etag) == (b"x", first.etag)

    def test_it_passes_the_probe(self, store: S3Store) -> None:
        assert prove_conditional_writes(store, scratch=".probe/1").scratch_left is False

    @pytest.mark.usefixtures("on_versitygw")
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


CALLS: dict[str, Callable[[S3Store], object]] = {
    "get": lambda store: store.get("a"),
    "list": lambda store: [*store.list("a")],
    "create": lambda store: store.create("a", b"x"),
    "replace": lambda store: store.replace("a", b"x", expected=ETag('"0"')),
    "delete": lambda store: store.delete(["a"]),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("AWS_SECRET_ACCESS_KEY", "SignatureDoesNotMatch"),
        ("AWS_ACCESS_KEY_ID", "XAdminUserNotFound"),
    ],
)
def test_a_wrong_key_is_a_settings_error_and_is_not_shown(
    *,
    on_versitygw: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    call: Callable[[S3Store], object],
    name: str,
    code: str,
) -> None:
    """versitygw checks signatures. ministack accepts any key."""
    monkeypatch.setenv(name, "canary")
    with pytest.raises(SettingsError, match=rf"'contract' at {on_versitygw} .*{code}") as refused:
        call(S3Store("s3://contract/wrong-key"))
    assert name in refused.value.hint
    assert "canary" not in error_text(refused.value) + caplog.text
