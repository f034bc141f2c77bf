"""The private parts of kafka-python that tallystick.kafka.connection uses: a new version must pass these tests."""

from __future__ import annotations

import inspect
import time
from types import SimpleNamespace

from kafka.net.connection import KafkaConnection
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.frame import KafkaBytes
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.parser import KafkaProtocol

import kafka
from tallystick.kafka.responses import Response
from tallystick_devstack.process import wait_until


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def test_the_version_of_kafka_python_is_the_one_that_was_reviewed() -> None:
    assert kafka.__version__.split(".")[:2] == ["3", "0"]


def test_the_private_functions_have_the_expected_parameters() -> None:
    assert parameters(NetworkSelector.run) == ["self", "coro", "args"]
    assert parameters(NetworkSelector.poll) == ["self", "timeout_ms", "future"]
    assert parameters(NetworkSelector.sleep) == ["self", "delay"]
    assert "slow_task_threshold_secs" in NetworkSelector.DEFAULT_CONFIG
    assert parameters(KafkaConnectionManager.bootstrap) == ["self", "timeout_ms", "refresh"]
    assert parameters(KafkaConnectionManager.send)[:3] == ["self", "request", "node_id"]
    assert parameters(KafkaConnectionManager._build_transport) == ["self", "node", "timeout_at"]
    options = (
        "receive_message_max_bytes",
        "socket_connection_setup_timeout_ms",
        "socket_connection_setup_timeout_max_ms",
        "socket_options",
        "proxy_url",
    )
    assert set(options) <= KafkaConnectionManager.DEFAULT_CONFIG.keys()
    assert parameters(KafkaNetSocket.dns_lookup) == ["self", "host", "port", "raise_error"]
    assert parameters(KafkaNetSocket.socket) == ["self", "family", "sock_type", "proto"]
    connect = ["self", "net", "addrinfo", "socket_options", "timeout_at"]
    assert parameters(KafkaNetSocket.connect) == connect
    assert parameters(KafkaSSLTransport.__init__) == ["self", "net", "sock", "host", "configs"]
    assert parameters(KafkaSSLTransport.handshake) == ["self"]
    for wait in (NetworkSelector.wait_read, NetworkSelector.wait_write):
        assert parameters(wait) == ["self", "fileobj", "timeout_at"]
    assert parameters(NetworkSelector.call_soon_with_future) == ["self", "coro", "args"]
    assert parameters(KafkaConnectionManager.least_loaded_node) == ["self"]


def test_a_throttled_connection_refuses_requests_until_a_known_time() -> None:
    net = NetworkSelector()
    manager = KafkaConnectionManager(net, bootstrap_servers="nowhere:1")
    assert manager._conns == {}
    connection = KafkaConnection(net, node_id=1)
    connection.initializing, connection.connected = False, True
    connection.broker_version_data = BrokerVersionData((4, 1))
    before = time.monotonic()
    connection._maybe_throttle(SimpleNamespace(throttle_time_ms=50))
    assert before + 0.05 <= connection._throttle_time <= time.monotonic() + 0.05
    assert connection.paused == {"throttle"}
    assert connection.send_request(MetadataRequest(topics=None)).exception.retriable
    wait_until(
        lambda: (net.poll(timeout_ms=10), not connection.paused)[1], deadline_s=10, what="its end"
    )
    net.close()


def test_a_parser_takes_its_responses_whole() -> None:
    """`connection` replaces the first method with calls of the second."""
    assert parameters(KafkaProtocol.receive_bytes) == ["self", "data"]
    assert parameters(KafkaProtocol._process_response) == ["self", "read_buffer"]
    assert parameters(KafkaConnection.data_received) == ["self", "data"]
    net = NetworkSelector()
    assert KafkaConnection(net, node_id=1).parser is None
    net.close()
    for transport in (KafkaTCPTransport, KafkaSSLTransport):
        assert parameters(transport._sock_recv) == ["self"]
        assert "_sock_recv" in inspect.getsource(transport._read_from_sock)


def test_a_response_reads_like_the_buffer_of_the_library() -> None:
    content = bytes(range(200)) * 1_000
    theirs = KafkaBytes(len(content))
    theirs.write(content)
    theirs.seek(0)
    ours = Response(bytearray(content))
    assert len(ours) == len(theirs)
    for count in (0, 4, 7, 100_000, 99_990, 5):
        assert ours.read(count) == theirs.read(count)
        assert ours.tell() == theirs.tell()
    ours.seek(3)
    theirs.seek(3)
    assert ours.read() == theirs.read()
    assert ours.tell() == theirs.tell()
    assert ours.read() == b""
