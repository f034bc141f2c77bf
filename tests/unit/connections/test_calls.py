"""Connections of HTTP receivers: checked settings, refused settings, and secrets that are never shown."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from support.call_receiver import Endpoint, receiver
from support.certificates import self_signed
from tallystick.connections.http import HttpSettings
from tallystick.connections.resolve import resolve
from tallystick.errors import (
    OutputRefused,
    SettingsError,
)
from tallystick.outputs.calls import HttpOutput
from tallystick.outputs.calls.http import HttpReceiver
from tallystick.store.memory import MemoryStore
from unit.outputs.claims_on_calls import publish
from unit.outputs.publications import publication

OLD = [{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "c", "n": 3}]
SECRET = "s3cr3t-t0ken"


def store() -> MemoryStore:
    """Return the empty store of a lake."""
    return MemoryStore("small")


def connected(url: str, settings: HttpSettings, notes: MemoryStore | None = None) -> HttpReceiver:
    """Return an output that uses the connection `settings`."""
    declared = HttpOutput(name="feed", table="events", url=url, concurrency=1)
    return HttpReceiver(declared, lambda: settings, notes or store(), patience_s=0.0)


def test_a_certificate_is_checked_and_a_trusted_one_is_accepted(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path / "own.pem")
    server = Endpoint()
    with receiver(server, certificate=certificate) as url:
        with pytest.raises(SettingsError, match="self-signed certificate"):
            publish(connected(url, HttpSettings()), publication(OLD))
        assert server.calls == []
        publish(connected(url, HttpSettings(cafile=str(certificate))), publication(OLD))
    assert len(server.calls) == 3
    with pytest.raises(SettingsError, match=r"cafile /nowhere.pem cannot be used: No such file"):
        publish(connected("https://a/b", HttpSettings(cafile="/nowhere.pem")), publication(OLD))


@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        (HttpSettings(bearer_token=SECRET), f"Bearer {SECRET}"),
        (HttpSettings(headers={"Authorization": f"Key {SECRET}"}), f"Key {SECRET}"),
        (HttpSettings(username="me", password=SECRET), "Basic bWU6czNjcjN0LXQwa2Vu"),
    ],
)
def test_secrets_reach_only_the_receiver(
    settings: HttpSettings, sent: str, caplog: pytest.LogCaptureFixture
) -> None:
    """They are not shown even if the receiver returns them in its answer."""
    caplog.set_level(logging.DEBUG)
    server = Endpoint(
        faults={0: "400"}, body=f"who is {sent} or {SECRET}?".encode() + b"\n\x1b" * 500
    )
    with receiver(server) as url, pytest.raises(OutputRefused) as caught:
        publish(connected(url, settings), publication(OLD))
    assert server.calls[0].headers["authorization"] == sent
    shown = f"{caught.value} {caught.value.__context__} {settings} {caplog.text}"
    assert SECRET not in shown
    assert "bWU6" not in shown
    assert "who is" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_base_url_may_hold_a_secret_in_its_path() -> None:
    server = Endpoint(faults={0: "404"})
    with receiver(server) as url, pytest.raises(OutputRefused) as caught:
        publish(
            connected("/rows", HttpSettings(base_url=f"{url}/hook/{SECRET}/")), publication(OLD)
        )
    assert server.calls[0].path == f"/hook/{SECRET}/rows"
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(HttpSettings(base_url=f"https://a/{SECRET}"))
    with pytest.raises(SettingsError, match="expected a base_url"):
        publish(connected("/rows", HttpSettings()), publication(OLD))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"headers": {"Idempotency-Key": SECRET}}, "header Idempotency-Key is set by tallystick"),
        ({"headers": {"X-A": f"{SECRET}\r\nX-B: 1"}}, "a character that headers do not allow"),
        ({"headers": {f"{SECRET}:": "1"}}, "a character that headers do not allow"),
        ({"headers": {"X-A": 1}}, "headers: expected an object of strings"),
        ({"verify": False}, "'verify' is not a setting"),
        ({"username": "me"}, "one of username and password"),
        (
            {"username": "me", "password": SECRET, "bearer_token": SECRET},
            "both bearer_token and username",
        ),
        ({"timeout_s": True}, "timeout_s: expected an integer, found a boolean"),
        ({"timeout_s": 0}, "timeout_s: expected 1 to 600, found 0"),
        ({"base_url": f"https://me:{SECRET}@a"}, "base_url: expected"),
    ],
)
def test_an_invalid_connection_is_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        resolve(HttpSettings, "main", environ={"TALLYSTICK_HTTP_MAIN": json.dumps(words)})
    assert message in str(caught.value)
    assert "TALLYSTICK_HTTP_MAIN" in str(caught.value)
    assert SECRET not in f"{caught.value} {caught.value.__context__}"


def test_a_connection_is_found_where_it_is_defined(tmp_path: Path) -> None:
    path = tmp_path / "http.main.json"
    path.touch(mode=0o600)
    path.write_text('{"timeout_s": 7}')
    environ = {"TALLYSTICK_SECRETS_DIR": str(tmp_path)}
    assert resolve(HttpSettings, "main", environ=environ).timeout_s == 7
    environ["TALLYSTICK_HTTP_MAIN"] = '{"timeout_s": 8}'
    assert resolve(HttpSettings, "main", environ=environ).timeout_s == 8
    assert resolve(HttpSettings, "default", environ={}) == HttpSettings()
    assert resolve(HttpSettings, "other", environ={}, fallback={"timeout_s": 9}).timeout_s == 9
    with pytest.raises(SettingsError, match="HTTP connection 'other' is not defined") as caught:
        resolve(HttpSettings, "other", environ={})
    assert "TALLYSTICK_HTTP_OTHER" in str(caught.value)
