"""Schema registries in Airflow's tasks: an Airflow connection becomes the settings, and its secrets are masked."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import BaseHook
from airflow.sdk.definitions.connection import Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from tallystick.airflow.connections import settings_named
from tallystick.connections.registry import RegistrySettings
from tallystick.errors import SettingsError


@pytest.mark.parametrize(
    ("words", "urls"),
    [
        ({"host": "registry", "port": 8081}, ("https://registry:8081",)),
        ({"host": "registry", "port": 8081, "schema": "http"}, ("http://registry:8081",)),
        ({"host": "http://r:1/apis/ccompat/v7"}, ("http://r:1/apis/ccompat/v7",)),
        ({"extra": '{"urls": ["https://a", "https://b"]}'}, ("https://a", "https://b")),
        ({"host": "c", "extra": '{"urls": "https://a"}'}, ("https://a",)),
    ],
)
def test_an_airflow_connection_becomes_our_settings(
    monkeypatch: pytest.MonkeyPatch, words: dict[str, Any], urls: tuple[str, ...]
) -> None:
    requested: list[str] = []
    masked: list[str] = []
    found = Connection(conn_id="any", conn_type="http", login="me", password="canary", **words)
    monkeypatch.setattr(BaseHook, "get_connection", lambda name: requested.append(name) or found)
    monkeypatch.setattr("tallystick.airflow.connections.mask_secret", masked.append)
    settings = settings_named(RegistrySettings, "main")
    assert requested == ["registry_main"]
    assert (settings.urls, settings.username, settings.password) == (urls, "me", "canary")
    assert set(masked) == set(settings.secrets())
    assert "canary" not in repr(settings)


def test_an_undefined_registry_is_reported_with_every_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_connection(_: str) -> Any:
        raise AirflowNotFoundException("not there")

    monkeypatch.setattr(BaseHook, "get_connection", no_connection)
    with pytest.raises(SettingsError) as caught:
        settings_named(RegistrySettings, "main")
    for place in ("TALLYSTICK_REGISTRY_MAIN", "registry.main.json", "connection registry_main"):
        assert place in str(caught.value)
