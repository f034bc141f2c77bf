"""The responses of a broker are received whole, in parts of any size; the end of a connection loses none of them."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import kafka.errors as kerrors
import pytest

from tallystick.kafka.responses import Receiver, Response

BODIES = (b"first", b"", bytes(range(256)) * 1_000, b"x", b"y" * 70_000)
BYTES_MAX = 1 << 20


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    yield ours, theirs
    ours.close()
    theirs.close()


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def contents(responses: list[Response]) -> list[bytes]:
    return [bytes(response.read()) for response in responses]


@pytest.mark.parametrize("part_bytes", [1, 3, 4, 5, 1_000, 65_536, 1 << 20])
def test_responses_arrive_whole_in_parts_of_any_size(
    pair: tuple[socket.socket, socket.socket], part_bytes: int
) -> None:
    ours, theirs = pair
    bodies = BODIES if part_bytes > 100 else (b"first", b"", b"x" * 40)
    stream = framed(*bodies)
    receiver = Receiver(bytes_max=BYTES_MAX)
    found = []
    for at in range(0, len(stream), part_bytes):
        theirs.sendall(stream[at : at + part_bytes])
        arrived, error = receiver.receive(ours)
        assert error is None
        found += contents(arrived)
    assert found == list(bodies)
    assert receiver.receive(ours) == ([], None)


@pytest.mark.parametrize("body", [b"small", b"large" * 20_000])
def test_the_buffer_of_a_response_is_not_used_again(
    pair: tuple[socket.socket, socket.socket], body: bytes
) -> None:
    ours, theirs = pair
    receiver = Receiver(bytes_max=BYTES_MAX)
    theirs.sendall(framed(body))
    ((first,), _) = receiver.receive(ours)
    view = first.read()
    theirs.sendall(framed(b"-" * len(body)))
    receiver.receive(ours)
    assert bytes(view) == body
    with pytest.raises(TypeError):
        view[0] = 0  # type: ignore[index]  # it is read-only, which is the claim


@pytest.mark.parametrize("rest", [b"", b"\x00\x00", framed(b"cut short")[:-1]])
def test_a_response_before_the_end_of_the_connection_is_returned_before_the_error(
    pair: tuple[socket.socket, socket.socket], rest: bytes
) -> None:
    """The library drops it, and with it the reason of a broker that refuses a password."""
    ours, theirs = pair
    receiver = Receiver(bytes_max=BYTES_MAX)
    theirs.sendall(framed(b"why") + rest)
    theirs.close()
    arrived, error = receiver.receive(ours)
    assert (contents(arrived), error) == ([b"why"], None)
    arrived, error = receiver.receive(ours)
    assert (arrived, str(error)) == ([], "KafkaConnectionError: socket disconnected")


def test_a_response_before_the_reset_of_a_connection_is_returned_before_the_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    # With this option, close() resets the connection.
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.sendall(framed(b"why"))
    theirs.close()
    receiver = Receiver(bytes_max=BYTES_MAX)
    with ours:
        arrived, error = receiver.receive(ours)
        assert (contents(arrived), error) == ([b"why"], None)
        arrived, error = receiver.receive(ours)
        assert arrived == []
        assert isinstance(error, kerrors.KafkaConnectionError)


def test_a_connection_that_breaks_is_an_error(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = pair
    ours.close()
    arrived, error = Receiver(bytes_max=BYTES_MAX).receive(ours)
    assert arrived == []
    assert isinstance(error, kerrors.KafkaConnectionError)
    assert "Bad file descriptor" in str(error)


@pytest.mark.parametrize(
    ("size", "fits"), [(100, True), (101, False), (-1, False), (1 << 30, False)]
)
def test_a_response_that_is_too_large_is_refused_before_it_is_received(
    pair: tuple[socket.socket, socket.socket], size: int, fits: bool
) -> None:
    ours, theirs = pair
    theirs.sendall(framed(b"ok") + struct.pack(">i", size))
    arrived, error = Receiver(bytes_max=100).receive(ours)
    assert contents(arrived) == [b"ok"]
    assert (error is None) == fits
    if not fits:
        assert isinstance(error, kerrors.InvalidReceiveError)
        assert str(size) in str(error)
