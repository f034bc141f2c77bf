"""Connections to somebody who is no Kafka: they end, with a reason."""

from __future__ import annotations

import gc
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataRequest

from support.canaries import error_text
from support.certificates import revocation_of, self_signed
from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.tls import tls_context
from tallystick.errors import KafkaUnavailable, SettingsError
from tallystick.kafka.connection import Connection, Retriable
from tallystick_devstack.process import free_port

# What is tested is that a call ends at all.
pytestmark = pytest.mark.timeout(60)
LOGIN = {
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "me",
    "sasl_plain_password": "not-to-be-seen",
}
PROTOCOLS = pytest.mark.parametrize(
    "words",
    [{"security_protocol": "SSL"}, {"security_protocol": "SASL_SSL", **LOGIN}],
    ids=["SSL", "SASL_SSL"],
)


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a listener whose kernel takes connections and who never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def settings(server: str, words: dict[str, str]) -> KafkaSettings:
    times: Any = {"request_timeout_ms": 300, "bootstrap_timeout_ms": 300}
    return KafkaSettings(bootstrap_servers=(server,), **times, **words)


@PROTOCOLS
def test_a_listener_that_never_answers_is_unavailable_and_named(
    silent: str, words: dict[str, str]
) -> None:
    with pytest.raises(
        KafkaUnavailable, match=rf"{silent}: .*TLS handshake failed: no answer in time"
    ):
        Connection(settings(silent, words)).__enter__()


@PROTOCOLS
def test_a_request_whose_connection_never_comes_ends(
    silent: str, words: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that goes silent after the bootstrap: the request waits in the library's buffer, without a timer."""
    monkeypatch.setattr(Connection, "_bootstrap", lambda _self: None)
    with Connection(settings(silent, words)) as connection:
        (node,) = connection._manager.cluster.bootstrap_brokers()
        sent = connection.send(MetadataRequest(topics=None), node.node_id)
        with pytest.raises(Retriable, match="TLS handshake failed: no answer in time"):
            connection.wait(sent)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return self_signed(tmp_path / "both.pem")


@pytest.fixture
def secured(certificate: Path) -> Iterator[tuple[str, Queue[bytes]]]:
    """The address of a listener that speaks TLS and hangs up after the first words, and what those words were."""
    heard: Queue[bytes] = Queue()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=_listen, args=(listener, context, heard), daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", heard
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        assert not thread.is_alive()


def _listen(listener: socket.socket, context: ssl.SSLContext, heard: Queue[bytes]) -> None:
    while True:
        try:
            plain, _ = listener.accept()
        except OSError:
            return  # the test is over
        with plain:
            plain.settimeout(10)
            try:
                with context.wrap_socket(plain, server_side=True) as taken:
                    heard.put(taken.recv(1_000))
            except OSError:
                pass  # a client that does not trust us


def test_a_request_goes_through_tls_where_the_certificate_is_trusted(
    secured: tuple[str, Queue[bytes]], certificate: Path
) -> None:
    server, heard = secured
    words = {"security_protocol": "SSL", "ssl_cafile": str(certificate)}
    with pytest.raises(KafkaUnavailable):
        Connection(settings(server, words)).__enter__()
    # Kafka's first words: a length, then ApiVersions (key 18).
    assert heard.get(timeout=10)[4:6] == b"\0\x12"


@pytest.mark.parametrize("checked", [True, False])
def test_a_certificate_of_another_host_is_refused_unless_that_is_allowed(
    secured: tuple[str, Queue[bytes]], certificate: Path, checked: bool
) -> None:
    server, heard = secured
    words: Any = {"security_protocol": "SSL", "ssl_cafile": str(certificate)}
    elsewhere = settings(server.replace("127.0.0.1", "localhost"), words)
    expected: Any = SettingsError if checked else KafkaUnavailable
    with pytest.raises(expected, match="Hostname mismatch" if checked else "localhost"):
        Connection(replace(elsewhere, ssl_check_hostname=checked)).__enter__()
    assert heard.empty() is checked


def test_a_certificate_that_nobody_vouches_for_is_a_matter_of_settings(
    secured: tuple[str, Queue[bytes]],
) -> None:
    server, heard = secured
    with pytest.raises(SettingsError, match=r"certificate that does not verify.*ssl_cafile"):
        Connection(settings(server, {"security_protocol": "SSL"})).__enter__()
    assert heard.empty()


@pytest.mark.parametrize(
    ("code", "kind", "told"),
    [
        (29, SettingsError, r"h:1 does not allow this: .*topic 'a'.*grant READ and DESCRIBE"),
        (30, SettingsError, r"h:1 does not allow this: .*topic 'a'.*grant READ and DESCRIBE"),
        (31, SettingsError, r"h:1 does not allow this: .*topic 'a'.*grant READ and DESCRIBE"),
        (35, SettingsError, r"h:1 is too old: .*topic 'a'.*3\.1 or newer"),
        (58, SettingsError, "refused to authenticate user 'me'.*sasl_plain_password"),
        (5, Retriable, "topic 'a'"),
        (-1, KafkaUnavailable, "h:1 did not give an answer: .*topic 'a'.*bootstrap_servers"),
    ],
)
def test_what_a_broker_answers_is_told_by_what_to_do_about_it(
    code: int, kind: type[Exception], told: str
) -> None:
    words = {"security_protocol": "SASL_PLAINTEXT", **LOGIN}
    with pytest.raises(kind, match=told):
        Connection(settings("h:1", words)).check(code, "topic 'a'")


def test_no_answer_of_a_broker_shows_the_password() -> None:
    connection = Connection(settings("h:1", {"security_protocol": "SASL_PLAINTEXT", **LOGIN}))
    said = f"{LOGIN['sasl_plain_password']}, said the broker"
    with pytest.raises(SettingsError) as caught:
        connection.check(29, said)
    assert "***, said the broker" in str(caught.value)
    assert "not-to-be-seen" not in error_text(caught.value)


@pytest.mark.parametrize("name", ["ssl_cafile", "ssl_certfile", "ssl_crlfile"])
@pytest.mark.parametrize("body", [None, b"", b"no certificate"], ids=["gone", "empty", "odd"])
def test_a_file_of_tls_that_cannot_be_used_is_named_before_anything_is_sent(
    silent: str, tmp_path: Path, name: str, body: bytes | None
) -> None:
    path = tmp_path / "x.pem"
    if body is not None:
        path.write_bytes(body)
    with pytest.raises(SettingsError, match=rf"^{name} {path} cannot be used: .*\. Next: check"):
        Connection(settings(silent, {"security_protocol": "SSL", name: str(path)})).__enter__()


@pytest.mark.parametrize("password", ["not-to-be-seen-nor-right", None])
def test_a_key_whose_password_is_wrong_or_missing_is_named_and_not_asked_for(
    silent: str, tmp_path: Path, password: str | None
) -> None:
    path = self_signed(tmp_path / "both.pem", password="right")
    words = {"security_protocol": "SSL", "ssl_certfile": str(path)}
    given = words if password is None else {**words, "ssl_password": password}
    with pytest.raises(
        SettingsError, match=rf"ssl_certfile {path} cannot be used.*ssl_password"
    ) as caught:
        Connection(settings(silent, given)).__enter__()
    assert "not-to-be-seen" not in error_text(caught.value)
    right = settings(silent, {**words, "ssl_password": "right"})
    assert tls_context(right) is not None


def test_a_revoked_certificate_is_refused(
    secured: tuple[str, Queue[bytes]], certificate: Path, tmp_path: Path
) -> None:
    server, heard = secured
    revoked = revocation_of(certificate, tmp_path / "crl.pem")
    words = {
        "security_protocol": "SSL",
        "ssl_cafile": str(certificate),
        "ssl_crlfile": str(revoked),
    }
    with pytest.raises(SettingsError, match=r"certificate that does not verify.*revoked"):
        Connection(settings(server, words)).__enter__()
    assert heard.empty()


def descriptors() -> int:
    """How many this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize("proxy", [None, "socks5"])
def test_a_refused_connection_leaves_no_socket_open(proxy: str | None) -> None:
    """Not to the collector either, which comes when it likes."""
    address = f"127.0.0.1:{free_port()}"
    settings = KafkaSettings(
        bootstrap_servers=(address, f"localhost:{free_port()}"),
        bootstrap_timeout_ms=300,
        proxy_url=proxy and f"{proxy}://{address}",
    )
    gc.collect()
    gc.disable()
    try:
        before = descriptors()
        for _ in range(3):
            with pytest.raises(KafkaUnavailable, match=f"Kafka at {address}"), Connection(settings):
                pass
        assert descriptors() == before
    finally:
        gc.enable()
