"""Connections by name: one allow-list, clear refusals, and no secret in any text."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.resolve import check_connection_name, env_name, resolve
from tallystick.errors import SettingsError

PASSWORD = "not-to-be-seen"
PLAIN = {"bootstrap_servers": "a:1, b:2"}
SASL = {
    "bootstrap_servers": ["a:1"],
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_plain_username": "me",
    "sasl_plain_password": PASSWORD,
    "ssl_cafile": "/ca.pem",
}


def made(words: dict[str, Any]) -> KafkaSettings:
    return KafkaSettings.from_mapping(words, source="here")


def test_the_environment_comes_first(tmp_path: Path) -> None:
    (tmp_path / "main.json").write_text(json.dumps({"bootstrap_servers": "file:1"}))
    (tmp_path / "main.json").chmod(0o600)
    environ = {"TALLYSTICK_KAFKA_MAIN": json.dumps(PLAIN), "TALLYSTICK_SECRETS_DIR": str(tmp_path)}
    assert resolve(KafkaSettings, "main", environ=environ).bootstrap_servers == ("a:1", "b:2")
    del environ["TALLYSTICK_KAFKA_MAIN"]
    assert resolve(KafkaSettings, "main", environ=environ).bootstrap_servers == ("file:1",)


def test_a_mapping_handed_in_comes_last() -> None:
    assert resolve(KafkaSettings, "main", environ={}, fallback=PLAIN).endpoint == "a:1,b:2"


def test_an_unknown_connection_is_reported_with_every_place(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError,
        match=r"TALLYSTICK_KAFKA_MY_MAIN is not set and TALLYSTICK_SECRETS_DIR is not",
    ):
        resolve(KafkaSettings, "my-main", environ={})
    with pytest.raises(SettingsError, match=r"there is no file .*my-main\.json"):
        resolve(KafkaSettings, "my-main", environ={"TALLYSTICK_SECRETS_DIR": str(tmp_path)})


@pytest.mark.parametrize(
    ("owner", "mode", "taken"),
    [
        ("ours", 0o600, True),
        ("ours", 0o400, True),
        ("ours", 0o440, False),
        ("ours", 0o640, False),
        ("ours", 0o644, False),
        ("ours", 0o602, False),
        ("root", 0o400, True),
        (
            "root",
            0o440,
            True,
        ),  # a Kubernetes secret that is mounted for a process that is not root (fsGroup)
        ("root", 0o640, True),
        ("root", 0o444, False),  # a Kubernetes secret without defaultMode has 0644
        ("root", 0o644, False),
        ("root", 0o660, False),
        ("root", 0o450, False),
        ("another", 0o600, False),
    ],
)
def test_a_secret_file_is_accepted_if_it_is_ours_or_roots_and_closed_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: str, mode: int, taken: bool
) -> None:
    path = tmp_path / "main.json"
    path.write_text(json.dumps(SASL))
    path.chmod(mode)
    # The user of the tests may not be able to change the owner of a file.
    uid = {"root": 0, "ours": 1000, "another": 1001}[owner]
    real = os.fstat

    def owned(descriptor: int) -> os.stat_result:
        found = real(descriptor)
        return os.stat_result((*found[:4], uid, *found[5:10]))

    monkeypatch.setattr("tallystick.connections.resolve.os.fstat", owned)
    monkeypatch.setattr("tallystick.connections.resolve.os.geteuid", lambda: 1000)
    environ = {"TALLYSTICK_SECRETS_DIR": str(tmp_path)}
    if taken:
        assert resolve(KafkaSettings, "main", environ=environ).sasl_plain_password == PASSWORD
        return
    message = (
        "expected owner 1000 \\(the user of this process\\) or root, found 1001"
        if owner == "another"
        else f"has mode {mode:04o}.*Next: chmod 06"
    )
    with pytest.raises(SettingsError, match=message) as refused:
        resolve(KafkaSettings, "main", environ=environ)
    assert PASSWORD not in str(refused.value)


def test_a_secret_file_may_be_a_link_but_not_a_folder(tmp_path: Path) -> None:
    target = tmp_path / "data"
    target.write_text(json.dumps(PLAIN))
    target.chmod(0o400)
    (tmp_path / "main.json").symlink_to(target)
    (tmp_path / "other.json").mkdir()
    environ = {"TALLYSTICK_SECRETS_DIR": str(tmp_path)}
    assert resolve(KafkaSettings, "main", environ=environ).endpoint == "a:1,b:2"
    with pytest.raises(SettingsError, match="is not a file"):
        resolve(KafkaSettings, "other", environ=environ)


@pytest.mark.parametrize("body", [b"\xff\xfe", b"x" * (65 << 10)])
def test_a_secret_file_that_is_no_text_or_too_large_is_refused(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "main.json"
    path.write_bytes(body)
    path.chmod(0o600)
    with pytest.raises(SettingsError, match=r"is not UTF-8|expected at most"):
        resolve(KafkaSettings, "main", environ={"TALLYSTICK_SECRETS_DIR": str(tmp_path)})


@pytest.mark.parametrize(
    "name", ["", "A", "a.b", "../a", "a/b", "-a", "_a", "a b", "ä", "a" * 64, "a\n"]
)
def test_invalid_names_are_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=r"connection name .* is not allowed"):
        check_connection_name(name)


def test_names_become_variables() -> None:
    assert env_name(KafkaSettings, "my-main_2") == "TALLYSTICK_KAFKA_MY_MAIN_2"


def test_secrets_are_not_in_the_repr() -> None:
    settings = made(SASL)
    assert PASSWORD not in repr(settings)
    assert PASSWORD not in str(settings)
    assert PASSWORD in settings.as_env_json()


def test_the_json_form_comes_back_the_same() -> None:
    settings = made(
        SASL | {"client_id": "x", "request_timeout_ms": 1_000, "ssl_check_hostname": False}
    )
    assert KafkaSettings.from_json(settings.as_env_json(), source="child") == settings


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"isolation_level": "read_uncommitted"}, "'isolation_level' is not a setting"),
        ({"group_id": "g"}, "'group_id' is not a setting"),
        ({"bootstrap_servers": ""}, "bootstrap_servers is missing or empty"),
        ({"bootstrap_servers": "a"}, "expected host:port, found 'a'"),
        ({"bootstrap_servers": "a:0"}, "expected host:port, found 'a:0'"),
        ({"bootstrap_servers": "a:99999"}, "expected host:port"),
        (
            {"bootstrap_servers": f"user:{PASSWORD}@a:1"},
            "an entry of bootstrap_servers is not host:port",
        ),
        ({"bootstrap_servers": 5}, "expected a string or a list of strings"),
        ({"bootstrap_servers": ["a:1", 5]}, "expected a string or a list of strings"),
        ({"security_protocol": "TLS"}, "unknown security_protocol 'TLS'"),
        ({"sasl_mechanism": "GSSAPI"}, "unsupported sasl_mechanism 'GSSAPI'"),
        ({"sasl_plain_username": ""}, "without sasl_plain_username or"),
        (
            {"sasl_plain_password": 12345},
            "sasl_plain_password: expected a string, found an integer",
        ),
        (
            {"security_protocol": "PLAINTEXT"},
            "sasl_mechanism has no effect with security_protocol PLAINTEXT",
        ),
        ({"security_protocol": "SASL_PLAINTEXT"}, "ssl_cafile has no effect"),
        ({"ssl_keyfile": "/k"}, "without ssl_certfile"),
        ({"request_timeout_ms": 0}, "request_timeout_ms: expected .*, found 0"),
        ({"empty_fetch_timeout_ms": 0}, "empty_fetch_timeout_ms: expected .*, found 0"),
        ({"empty_fetch_timeout_ms": 3_600_001}, "expected 1 to 3600000"),
        ({"request_timeout_ms": True}, "request_timeout_ms: expected an integer, found a boolean"),
        (
            {"ssl_check_hostname": "false"},
            "ssl_check_hostname: expected a boolean, found a string",
        ),
        ({"proxy_url": f"http://u:{PASSWORD}@p:1"}, "proxy_url is not a SOCKS5 address"),
    ],
)
def test_a_wrong_setting_is_refused_by_name_and_without_its_value(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message) as refused:
        made(SASL | change)
    assert refused.value.message.startswith("here: ")
    assert PASSWORD not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize(
    "text", [f'{{"sasl_plain_password": "{PASSWORD}"', "[]", "null", '{"a": 1, "a": 2}', "[" * 9999]
)
def test_text_that_is_no_object_is_refused_without_quoting_it(text: str) -> None:
    with pytest.raises(
        SettingsError, match="environment variable TALLYSTICK_KAFKA_MAIN: the value is"
    ) as refused:
        resolve(KafkaSettings, "main", environ={"TALLYSTICK_KAFKA_MAIN": text})
    assert PASSWORD not in str(refused.value)
    assert refused.value.__cause__ is None
