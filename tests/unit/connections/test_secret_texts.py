"""Errors in code that has secrets: no message, no chained error and no log line shows a secret.

The canary is in the place of a real secret, and where people put secrets by mistake: in URLs, in broken JSON, in files
that others can read. Failed logins at a real broker are in tests/kafka, refusals of a real S3 server in tests/contract.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.canaries import error_text
from support.small_lake import pipeline
from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.resolve import resolve
from tallystick.engine.transform import JobTransform
from tallystick.errors import (
    InvalidPipeline,
    KafkaUnavailable,
    SettingsError,
    StoreUnavailable,
    TallystickError,
    listed,
    without_user_info,
)
from tallystick.format.offsets import Position
from tallystick.kafka.client import KafkaClient
from tallystick.pipeline import Pipeline
from tallystick.store.open import open_store
from tallystick_devstack.testing.servers import free_port
from unit.cli.invoke import tally

# Like AWS's keys, it contains a slash and a plus.
CANARY = "canary/of+a/secret"
LOGIN = {
    "bootstrap_servers": "h:1",
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "me",
    "sasl_plain_password": CANARY,
}


def quiet(
    kind: type[TallystickError], run: Callable[[], object], log: pytest.LogCaptureFixture
) -> TallystickError:
    """Run what must be refused with an error of `kind`, with every log at DEBUG, and check that no canary is shown."""
    # Tasks that ran in this process set the logger of kafka-python to a higher level.
    levels = (log.at_level(logging.DEBUG), log.at_level(logging.DEBUG, logger="kafka"))
    with levels[0], levels[1], pytest.raises(kind) as caught:
        run()
    for part in (error_text(caught.value), log.text):
        # A part of it would be a leak, too: a URL is split at its slashes.
        assert "canary" not in part
        assert "a/secret" not in part
    return caught.value


def in_environment(text: str) -> KafkaSettings:
    return resolve(KafkaSettings, "main", environ={"TALLYSTICK_KAFKA_MAIN": text})


@pytest.mark.parametrize(
    "text",
    [
        CANARY,
        json.dumps(CANARY),
        json.dumps([CANARY]),
        json.dumps(LOGIN)[:-1],
        json.dumps(LOGIN)[:-1] + ",}",
        json.dumps(LOGIN)[:-1] + f', "sasl_plain_password": "{CANARY}"}}',
        json.dumps(LOGIN).replace("h:1", "h"),
        json.dumps(LOGIN | {"sasl_plain_password": [CANARY]}),
        json.dumps(LOGIN | {"sasl_plain_password": {CANARY: 1}}),
        json.dumps(LOGIN | {"security_protocol": "PLAINTEXT"}),
        json.dumps(LOGIN | {"sasl_mechanism": "GSSAPI"}),
        json.dumps(LOGIN | {"sasl.password": CANARY}),
        json.dumps(LOGIN | {"bootstrap_servers": f"me:{CANARY}@h:1"}),
        json.dumps(LOGIN | {"bootstrap_servers": f"kafka://me:{CANARY}@h:1"}),
        json.dumps(LOGIN | {"request_timeout_ms": CANARY}),
        json.dumps(LOGIN | {"ssl_password": CANARY}),
    ],
)
def test_an_invalid_connection_is_refused_without_quoting_it(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    refused = quiet(SettingsError, lambda: in_environment(text), caplog)
    assert refused.message.startswith("environment variable TALLYSTICK_KAFKA_MAIN: ")


@pytest.mark.parametrize(
    "url",
    [
        f"http://me:{CANARY}@h:1",
        f"socks5://me:{CANARY}@h:1",
        "socks5://me:canary@h",
        "socks5://me:canary@h:canary",
        "socks5://me:canary@h:1/canary",
        "socks5://me:canary@[h:1",
    ],
)
def test_an_invalid_proxy_is_refused_without_quoting_it(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    refused = quiet(
        SettingsError, lambda: in_environment(json.dumps(LOGIN | {"proxy_url": url})), caplog
    )
    assert "%2F" in refused.hint


@pytest.mark.parametrize(
    ("body", "mode", "message"),
    [
        (json.dumps(LOGIN).encode(), 0o644, "has mode 0644"),
        (json.dumps(LOGIN).encode(), 0o620, "has mode 0620"),
        (json.dumps(LOGIN).encode()[:-1], 0o600, "not a JSON object"),
        (json.dumps(LOGIN).encode()[:-1] + b',"a":"\xff"}', 0o600, "is not UTF-8"),
        (json.dumps(LOGIN | {"x": CANARY * 9999}).encode(), 0o600, "expected at most 65536 bytes"),
    ],
)
def test_a_refused_secrets_file_is_not_quoted(
    tmp_path: Path, body: bytes, mode: int, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "main.json"
    path.write_bytes(body)
    path.chmod(mode)
    environ = {"TALLYSTICK_SECRETS_DIR": str(tmp_path)}
    refused = quiet(SettingsError, lambda: resolve(KafkaSettings, "main", environ=environ), caplog)
    assert f"secret file {path}" in refused.message
    assert message in refused.message


def test_a_secrets_file_that_cannot_be_opened_or_is_anothers_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"TALLYSTICK_SECRETS_DIR": str(tmp_path)}
    path = tmp_path / "main.json"
    path.symlink_to(path)
    with pytest.raises(SettingsError, match=rf"{path} cannot be opened: Too many levels"):
        resolve(KafkaSettings, "main", environ=environ)
    path.unlink()
    path.write_text(json.dumps(LOGIN))
    path.chmod(0o600)
    owner = path.stat().st_uid
    monkeypatch.setattr("os.geteuid", lambda: owner + 2)
    monkeypatch.setattr("tallystick.connections.resolve.ROOT_UID", owner + 1)
    with pytest.raises(
        SettingsError,
        match=rf"expected owner {owner + 2} \(the user of this process\) or root, found {owner}\.",
    ):
        resolve(KafkaSettings, "main", environ=environ)


@pytest.mark.parametrize(
    "words",
    [
        LOGIN,
        LOGIN | {"security_protocol": "SASL_SSL"},
        LOGIN | {"proxy_url": "socks5://me:canary-of-a-proxy@127.0.0.1:{port}"},
    ],
    ids=["plain", "TLS", "behind a proxy"],
)
def test_unreachable_brokers_are_named_without_a_password(
    words: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    spelt = {k: v.replace("{port}", str(port)) for k, v in words.items()}
    settings = KafkaSettings.from_mapping(
        spelt | {"bootstrap_servers": f"127.0.0.1:{port}", "bootstrap_timeout_ms": 300},
        source="the test",
    )
    assert "canary" not in repr(settings)
    refused = quiet(KafkaUnavailable, KafkaClient(settings).__enter__, caplog)
    assert f"Kafka at 127.0.0.1:{port}" in refused.message
    assert "kafka" in caplog.text


@pytest.mark.parametrize(
    "uri",
    [
        f"s3://AKIA:{CANARY}@lake/flights",
        "s3://AKIA:canary@lake/flights",
        "s3://canary@lake/flights",
        f"https://me:{CANARY}@s3.example.com/lake",
        f"AKIA:{CANARY}@lake/flights",
        "s3:/AKIA:se@cret/canary@lake/flights",
    ],
)
def test_a_lake_uri_with_a_key_in_it_is_refused_without_quoting_the_key(
    uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = vars_of(pipeline("memory://lake")) | {"warehouse": uri}
    refused = quiet(InvalidPipeline, lambda: Pipeline(**given), caplog)
    assert "AWS_ACCESS_KEY_ID" in refused.hint
    quiet(InvalidPipeline, lambda: open_store(uri), caplog)
    ended = tally("status", uri)
    assert (ended.exit_code, ended.stdout) == (77, "")
    assert "canary" not in ended.stderr
    assert "expected no @" in ended.stderr


def vars_of(declared: Pipeline) -> dict[str, Any]:
    return {name: getattr(declared, name) for name in declared.__dataclass_fields__}


@pytest.mark.parametrize(
    "url",
    [
        "http://me:canary@127.0.0.1:9",
        f"http://me:{CANARY}@127.0.0.1:9",
        "me:canary@127.0.0.1:9",
        "http://canary@[127.0.0.1",
    ],
)
@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"])
def test_an_endpoint_with_a_password_in_it_is_refused_without_quoting_it(
    name: str, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(name, url)
    refused = quiet(SettingsError, lambda: open_store("s3://lake/flights"), caplog)
    assert "AWS_ENDPOINT_URL_S3" in refused.hint


@pytest.fixture
def leaking_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Configure a credential process that prints a secret and fails."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    program = tmp_path / "credentials"
    program.write_text(f"#!/bin/sh\necho {CANARY} >&2\nexit 1\n")
    program.chmod(0o700)
    (tmp_path / "config").write_text(f"[profile odd]\ncredential_process = {program}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "odd")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")


@pytest.mark.usefixtures("leaking_credentials")
def test_the_output_of_a_credential_process_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    refused = quiet(StoreUnavailable, lambda: open_store("s3://lake/flights"), caplog)
    assert "did not answer (CredentialRetrievalError)" in refused.message


@pytest.mark.usefixtures("leaking_credentials")
def test_the_output_of_a_credential_process_is_not_shown_by_sql(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from tallystick.tables.sql import duckdb_connection

    tables = {"t": "s3://lake/flights/tables/t/metadata/1.json"}
    refused = quiet(
        SettingsError, lambda: duckdb_connection(tables, environ={"AWS_PROFILE": "odd"}), caplog
    )
    assert "AWS_PROFILE" in refused.hint


def test_a_key_that_duckdb_cannot_take_is_not_quoted(caplog: pytest.LogCaptureFixture) -> None:
    from tallystick.tables.sql import duckdb_connection

    environ = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": f"{CANARY}\0"}
    tables = {"t": "s3://lake/flights/tables/t/metadata/1.json"}
    refused = quiet(SettingsError, lambda: duckdb_connection(tables, environ=environ), caplog)
    assert "AWS_SECRET_ACCESS_KEY" in refused.hint


def test_a_password_in_the_error_of_a_job_is_masked() -> None:
    def transform(_: object) -> object:
        raise ConnectionError(f"cannot reach postgresql://me:{CANARY}@db:5432/flights, is it up?")

    import pyarrow as pa

    job = JobTransform(transform, pipeline("memory://lake"))
    split: Any = "events[0] [0, 1)"
    with pytest.raises(InvalidPipeline) as caught:
        job(split, pa.table({"_offset": [0]}))
    # The trace in the task's log is the job's own; this text is passed on to Airflow and to people.
    assert "cannot reach postgresql://***@db:5432/flights, is it up?" in str(caught.value)
    assert CANARY not in repr(caught.value)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"a://me:{CANARY}@h/b and c://d:e@f", "a://***@h/b and c://***@f"),
        ("http://me@h:1/b", "http://***@h:1/b"),
        (f"https://me:p@{CANARY}@h/x", "https://***@h/x"),
        (f"socks5://us@er:{CANARY}@h:1080", "socks5://***@h:1080"),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
        ("arn:aws:iam::123:role/x@y", "arn:aws:iam::123:role/x@y"),
        ("http://h:1/b", "http://h:1/b"),
        ("s3://lake/plans/x.json@abc, at http://h:9", "s3://lake/plans/x.json@abc, at http://h:9"),
        ("me@h, a:b@c", "me@h, a:b@c"),
    ],
)
def test_users_and_passwords_of_urls_are_masked_and_nothing_else(text: str, masked: str) -> None:
    assert without_user_info(text) == masked
    error = TallystickError(text, hint=text)
    assert (error.message, error.hint, error.args) == (masked, masked, (masked, masked))


def test_listed_names_are_separated_by_commas() -> None:
    assert listed(["a", 1]) == "a, 1"
    assert listed([]) == "none"
    with pytest.raises(TallystickError, match=r"here\.offset: expected an integer, found a list"):
        Position.from_json([["secret"], 0], "here")
