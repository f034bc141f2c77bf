"""The preparations of `make setup`."""

from __future__ import annotations

import pytest

from tallystick.errors import SettingsError
from tallystick_devstack import prepare


def test_a_failed_archive_is_reported_and_the_rest_is_prepared(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    done: list[str] = []
    monkeypatch.setattr(prepare, "_fetch_broker", lambda: done.append("broker"))
    monkeypatch.setattr(prepare, "_fetch_registry", lambda: done.append("registry"))
    monkeypatch.setattr(prepare, "compile_decoders", lambda: done.append("decoders"))
    monkeypatch.setattr(prepare, "_archive_kafka", lambda: done.append("Kafka"))
    monkeypatch.setattr(prepare, "_archive_registry", lambda: done.append("classes"))

    def no_room() -> None:
        done.append("Spark")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(prepare, "_archive_spark", no_room)
    assert prepare.main() == 0
    assert sorted(done) == ["Kafka", "Spark", "broker", "classes", "decoders", "registry"]
    printed = capsys.readouterr().err
    archived = (
        "Kafka's classes: archived\nthe schema registry's classes: archived\n"
        "Spark's classes: not archived, so it starts more slowly: "
    )
    assert f"{archived}[Errno 28] No space left on device\n" in printed


@pytest.mark.parametrize("server", ["_fetch_broker", "_fetch_registry"])
def test_a_server_that_cannot_be_fetched_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], server: str
) -> None:
    def fail() -> None:
        raise SettingsError("no java in PATH.", hint="install Java 17 or newer.")

    monkeypatch.setattr(prepare, "_fetch_broker", lambda: None)
    monkeypatch.setattr(prepare, server, fail)
    monkeypatch.setattr(prepare, "_archive_spark", lambda: None)
    assert prepare.main() == 1
    assert capsys.readouterr().err == "no java in PATH. Next: install Java 17 or newer.\n"
