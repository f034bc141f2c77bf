"""Connections of schema registries: checked settings, refused settings, and secrets that are never shown."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tallystick.connections.registry import RegistrySettings
from tallystick.connections.resolve import env_name, resolve
from tallystick.errors import SettingsError

SECRET = "s3cr3t-t0ken"
URL = "https://a:8081"


def from_environment(words: dict[str, Any]) -> RegistrySettings:
    environ = {"TALLYSTICK_REGISTRY_MAIN": json.dumps(words)}
    return resolve(RegistrySettings, "main", environ=environ)


@pytest.mark.parametrize(
    ("urls", "expected"),
    [
        (URL, (URL,)),
        (f"{URL}/", (URL,)),
        ("http://127.0.0.1:1/apis/ccompat/v7", ("http://127.0.0.1:1/apis/ccompat/v7",)),
        ("https://a, https://b/x/", ("https://a", "https://b/x")),
        (["https://a", " https://b "], ("https://a", "https://b")),
        ("https://[::1]:8081", ("https://[::1]:8081",)),
    ],
)
def test_urls_are_a_list_or_a_text_with_commas(urls: object, expected: tuple[str, ...]) -> None:
    settings = from_environment({"urls": urls})
    assert settings.urls == expected
    assert settings.endpoint == ", ".join(expected)
    assert settings.timeout_s == 10


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({}, "urls is missing or empty"),
        ({"urls": " , "}, "urls is missing or empty"),
        ({"urls": "a:8081"}, "urls: expected http(s)://host"),
        ({"urls": f"https://me:{SECRET}@a"}, "urls: expected http(s)://host"),
        ({"urls": f"https://a?key={SECRET}"}, "urls: expected http(s)://host"),
        ({"urls": f"https://a, https://a#{SECRET}"}, "urls: expected http(s)://host"),
        ({"urls": "https://a:port"}, "urls: expected http(s)://host"),
        ({"urls": [1]}, "urls: expected a string or a list of strings"),
        ({"urls": {"a": SECRET}}, "urls: expected a string or a list of strings"),
        ({"urls": URL, "username": "me"}, "only one of username and password"),
        ({"urls": URL, "password": SECRET}, "only one of username and password"),
        (
            {"urls": URL, "username": "me", "password": SECRET, "bearer_token": SECRET},
            "both bearer_token and username",
        ),
        ({"urls": URL, "username": "m:e", "password": SECRET}, "username contains a colon"),
        ({"urls": URL, "bearer_token": f"{SECRET}\r\nX: 1"}, "that headers do not allow"),
        ({"urls": URL, "bearer_token": f"{SECRET}é"}, "that headers do not allow"),
        ({"urls": URL, "keyfile": "k.pem"}, "set without certfile"),
        ({"urls": URL, "key_password": SECRET}, "set without certfile"),
        ({"urls": "http://a", "cafile": "ca.pem"}, "cafile has no effect without an https url"),
        ({"urls": "http://a", "certfile": "c.pem"}, "certfile has no effect without an https url"),
        ({"urls": URL, "timeout_s": 0}, "timeout_s: expected 1 to 600, found 0"),
        ({"urls": URL, "timeout_s": "9"}, "timeout_s: expected an integer, found a string"),
        (
            {"urls": URL, "password": None, "username": "a"},
            "password: expected a string, found null",
        ),
        ({"urls": URL, "basic.auth.user.info": SECRET}, "'basic.auth.user.info' is not a setting"),
    ],
)
def test_an_invalid_connection_is_refused_without_quoting_it(
    words: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        from_environment(words)
    assert caught.value.message.startswith("environment variable TALLYSTICK_REGISTRY_MAIN: ")
    assert message in caught.value.message
    assert SECRET not in f"{caught.value}{caught.value.__cause__}{caught.value.__context__}"


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        ({}, {}),
        ({"bearer_token": SECRET}, {"Authorization": f"Bearer {SECRET}"}),
        (
            {"username": "me", "password": SECRET},
            {"Authorization": f"Basic {base64.b64encode(f'me:{SECRET}'.encode()).decode()}"},
        ),
    ],
)
def test_secrets_are_sent_and_not_shown(words: dict[str, str], sent: dict[str, str]) -> None:
    settings = from_environment({"urls": URL} | words)
    assert settings.sent_headers() == sent
    assert SECRET not in repr(settings)
    secrets = settings.secrets()
    assert (SECRET in secrets) is bool(words)
    assert all(header.rpartition(" ")[2] in secrets for header in sent.values())
    assert list(secrets) == sorted(secrets, key=len, reverse=True)


def test_a_connection_is_found_where_it_is_defined(tmp_path: Path) -> None:
    assert env_name(RegistrySettings, "a-b") == "TALLYSTICK_REGISTRY_A_B"
    path = tmp_path / "registry.main.json"
    path.touch(mode=0o600)
    path.write_text('{"urls": "https://file"}')
    environ = {"TALLYSTICK_SECRETS_DIR": str(tmp_path)}
    assert resolve(RegistrySettings, "main", environ=environ).urls == ("https://file",)
    with pytest.raises(SettingsError, match="schema registry connection 'other' is not") as caught:
        resolve(RegistrySettings, "other", environ=environ)
    assert "TALLYSTICK_REGISTRY_OTHER" in caught.value.hint
    assert "registry.other.json" in caught.value.hint
