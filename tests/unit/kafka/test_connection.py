"""Connections to somebody who is no Kafka: they end, with a reason."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataRequest

from certificates import self_signed
from tallystick.errors import KafkaUnavailable, SettingsError
from tallystick.kafka.connection import Connection, Retriable
from tallystick.kafka.settings import KafkaSettings

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


def test_a_certificate_that_nobody_vouches_for_is_a_matter_of_settings(
    secured: tuple[str, Queue[bytes]],
) -> None:
    server, heard = secured
    with pytest.raises(SettingsError, match=r"certificate that does not verify.*ssl_cafile"):
        Connection(settings(server, {"security_protocol": "SSL"})).__enter__()
    assert heard.empty()
