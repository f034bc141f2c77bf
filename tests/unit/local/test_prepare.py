"""What `make setup` and the image prepare: an image brings its own broker, so it fetches none."""

from __future__ import annotations

import pytest

from tallystick.errors import SettingsError
from tallystick.local import prepare


@pytest.mark.parametrize(
    ("words", "done"),
    [([], ["Kafka", "Spark", "broker", "decoders"]), (["--decoders"], ["decoders"])],
)
def test_decoders_alone_where_that_is_asked(
    words: list[str],
    done: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found: list[str] = []
    monkeypatch.setattr(prepare, "_fetch_broker", lambda: found.append("broker"))
    monkeypatch.setattr(prepare, "_compile_decoders", lambda: found.append("decoders"))
    monkeypatch.setattr(prepare, "_archive_kafka", lambda: found.append("Kafka"))

    def no_room() -> None:
        found.append("Spark")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(prepare, "_archive_spark", no_room)
    assert prepare.main(words) == 0
    assert sorted(found) == done
    told = capsys.readouterr().err
    archived = (
        "Kafka's classes: archived\nSpark's classes: not archived, it will start more slowly: "
    )
    assert (f"{archived}[Errno 28] No space left on device\n" in told) is (not words)


def test_a_broker_that_cannot_be_fetched_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise SettingsError("no java in PATH.", next_step="install Java 17 or newer.")

    monkeypatch.setattr(prepare, "_fetch_broker", fail)
    monkeypatch.setattr(prepare, "_archive_spark", lambda: None)
    assert prepare.main([]) == 1
    assert capsys.readouterr().err == "no java in PATH. Next: install Java 17 or newer.\n"
