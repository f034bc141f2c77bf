"""Connections to a server that is not Kafka: they end, with a reason."""

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
from tallystick.kafka.connection import Connection, RetriableError
from tallystick_devstack.process import free_port

# These tests check that a call ends.
pytestmark = pytest.mark.timeout(60)
LOGIN = {
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "me",
    "sasl_plain_password": "not-to-be-seen",
}
PROTOCOLS = pytest.mark.parametrize(
    "options",
    [{"security_protocol": "SSL"}, {"security_protocol": "SASL_SSL", **LOGIN}],
    ids=["SSL", "SASL_SSL"],
)


@pytest.fixture
def silent() -> Iterator[str]:
    """Return the address of a listener whose kernel accepts connections, and that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def settings(server: str, options: dict[str, str]) -> KafkaSettings:
    times: Any = {"request_timeout_ms": 300, "bootstrap_timeout_ms": 300}
    return KafkaSettings(bootstrap_servers=(server,), **times, **options)


@PROTOCOLS
def test_a_listener_that_never_answers_is_unavailable_and_named(
    silent: str, options: dict[str, str]
) -> None:
    with pytest.raises(
        KafkaUnavailable, match=rf"{silent}: .*TLS handshake failed: no answer in time"
    ):
        Connection(settings(silent, options)).__enter__()


@PROTOCOLS
def test_a_request_without_a_connection_ends(
    silent: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader does not answer after the bootstrap: the request waits in the buffer of the library, without a timer."""
    monkeypatch.setattr(Connection, "_bootstrap", lambda _self: None)
    with Connection(settings(silent, options)) as connection:
        (node,) = connection._manager.cluster.bootstrap_brokers()
        sent = connection.send(MetadataRequest(topics=None), node.node_id)
        with pytest.raises(RetriableError, match="TLS handshake failed: no answer in time"):
            connection.wait(sent)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return self_signed(tmp_path / "both.pem")


@pytest.fixture
def secured(certificate: Path) -> Iterator[tuple[str, Queue[bytes]]]:
    """Return the address of a TLS listener that hangs up after the first bytes, and a queue of those bytes."""
    received: Queue[bytes] = Queue()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=_listen, args=(listener, context, received), daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", received
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        assert not thread.is_alive()


def _listen(listener: socket.socket, context: ssl.SSLContext, received: Queue[bytes]) -> None:
    while True:
        try:
            plain, _ = listener.accept()
        except OSError:
            return  # the test is over
        with plain:
            plain.settimeout(10)
            try:
                with context.wrap_socket(plain, server_side=True) as secure:
                    received.put(secure.recv(1_000))
            except OSError:
                pass  # a client that does not trust this certificate


def test_a_request_goes_through_tls_if_the_certificate_is_trusted(
    secured: tuple[str, Queue[bytes]], certificate: Path
) -> None:
    server, received = secured
    options = {"security_protocol": "SSL", "ssl_cafile": str(certificate)}
    with pytest.raises(KafkaUnavailable):
        Connection(settings(server, options)).__enter__()
    # The first bytes of Kafka: a length, then ApiVersions (key 18).
    assert received.get(timeout=10)[4:6] == b"\0\x12"


@pytest.mark.parametrize("checked", [True, False])
def test_a_certificate_of_another_host_is_refused_unless_that_is_allowed(
    secured: tuple[str, Queue[bytes]], certificate: Path, checked: bool
) -> None:
    server, received = secured
    options: Any = {"security_protocol": "SSL", "ssl_cafile": str(certificate)}
    elsewhere = settings(server.replace("127.0.0.1", "localhost"), options)
    expected: Any = SettingsError if checked else KafkaUnavailable
    with pytest.raises(expected, match="Hostname mismatch" if checked else "localhost"):
        Connection(replace(elsewhere, ssl_check_hostname=checked)).__enter__()
    assert received.empty() is checked


def test_an_untrusted_certificate_is_a_settings_error(
    secured: tuple[str, Queue[bytes]],
) -> None:
    server, received = secured
    with pytest.raises(SettingsError, match=r"certificate that cannot be verified.*ssl_cafile"):
        Connection(settings(server, {"security_protocol": "SSL"})).__enter__()
    assert received.empty()


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (29, SettingsError, r"h:1 does not allow this: .*topic 'a'.*grant READ and DESCRIBE"),
        (30, SettingsError, r"h:1 does not allow this: .*topic 'a'.*grant READ and DESCRIBE"),
        (31, SettingsError, r"h:1 does not allow this: .*topic 'a'.*grant READ and DESCRIBE"),
        (35, SettingsError, r"h:1 is too old: .*topic 'a'.*3\.1 or newer"),
        (58, SettingsError, "refused to authenticate user 'me'.*sasl_plain_password"),
        (5, RetriableError, "topic 'a'"),
        (-1, KafkaUnavailable, "h:1 did not return an answer: .*topic 'a'.*bootstrap_servers"),
    ],
)
def test_each_error_code_of_a_broker_has_an_error_with_a_hint(
    code: int, kind: type[Exception], message: str
) -> None:
    options = {"security_protocol": "SASL_PLAINTEXT", **LOGIN}
    with pytest.raises(kind, match=message):
        Connection(settings("h:1", options)).check(code, "topic 'a'")


def test_no_error_shows_the_password_although_the_broker_repeats_it() -> None:
    connection = Connection(settings("h:1", {"security_protocol": "SASL_PLAINTEXT", **LOGIN}))
    answer = f"{LOGIN['sasl_plain_password']}, answered the broker"
    with pytest.raises(SettingsError) as caught:
        connection.check(29, answer)
    assert "***, answered the broker" in str(caught.value)
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
def test_a_key_whose_password_is_wrong_or_missing_is_an_error_without_a_prompt(
    silent: str, tmp_path: Path, password: str | None
) -> None:
    path = self_signed(tmp_path / "both.pem", password="right")
    options = {"security_protocol": "SSL", "ssl_certfile": str(path)}
    with_password = options if password is None else {**options, "ssl_password": password}
    with pytest.raises(
        SettingsError, match=rf"ssl_certfile {path} cannot be used.*ssl_password"
    ) as caught:
        Connection(settings(silent, with_password)).__enter__()
    assert "not-to-be-seen" not in error_text(caught.value)
    right = settings(silent, {**options, "ssl_password": "right"})
    assert tls_context(right) is not None


def test_a_revoked_certificate_is_refused(
    secured: tuple[str, Queue[bytes]], certificate: Path, tmp_path: Path
) -> None:
    server, received = secured
    revoked = revocation_of(certificate, tmp_path / "crl.pem")
    options = {
        "security_protocol": "SSL",
        "ssl_cafile": str(certificate),
        "ssl_crlfile": str(revoked),
    }
    with pytest.raises(SettingsError, match=r"certificate that cannot be verified.*revoked"):
        Connection(settings(server, options)).__enter__()
    assert received.empty()


def descriptors() -> int:
    """Return the number of open descriptors of this process."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize("proxy", [None, "socks5"])
def test_a_refused_connection_leaves_no_socket_open(proxy: str | None) -> None:
    """Garbage collection is off: the sockets are closed without it."""
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
