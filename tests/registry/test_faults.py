"""The client behind a network that fails: a registry that is down, slow, broken, or not a registry."""

from __future__ import annotations

import itertools
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from support.certificates import self_signed
from support.registries import TestRegistry
from tallystick.connections.registry import RegistrySettings
from tallystick.errors import RegistryRefused, RegistryUnavailable, SettingsError, TallystickError
from tallystick.registry.client import VERSIONS_MAX, RegistryClient
from tallystick_devstack.testing.fault_proxy import FaultProxy, HttpFault, Reply, Seen
from tallystick_devstack.testing.servers import free_port

PATIENCE_S = 60.0
UNAVAILABLE = HttpFault(forward="never", answer=503)
BUSY = HttpFault(forward="never", answer=429)
CLOSED = HttpFault(forward="never", answer="close")
RESET = HttpFault(forward="never", answer="reset")
CUT = HttpFault(answer="cut")
HANG = HttpFault(forward="never", answer="hang")
FAILED = HttpFault(forward="never", answer=500)
SCHEMA = '{"type":"record","name":"R","fields":[]}'
API = "/apis/ccompat/v7"


def behind(proxy: FaultProxy, registry: TestRegistry, **changes: object) -> RegistrySettings:
    """Return the settings of a client that uses the registry through a proxy."""
    return registry.settings(urls=[proxy.url + API], **changes)


@pytest.mark.parametrize(
    "faults",
    [
        [FAILED, FAILED, FAILED],
        [UNAVAILABLE],
        [BUSY],
        [CLOSED],
        [RESET],
        [CUT],
        [HANG],
    ],
    ids=["500 thrice", "503", "429", "closed", "reset", "cut", "hang"],
)
def test_a_passing_fault_is_retried(registry: TestRegistry, faults: list[HttpFault]) -> None:
    subject = registry.subject()
    schema_id = registry.register(subject, SCHEMA)
    with FaultProxy(registry.server.url, faults, method="GET") as proxy:
        client = RegistryClient(behind(proxy, registry, timeout_s=2), patience_s=PATIENCE_S)
        assert client.by_id(schema_id).text == SCHEMA
        assert len(proxy.seen) == len(faults) + 1
        assert {one.method for one in proxy.seen} == {"GET"}


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (FAILED, r"answered 500 to GET /schemas/ids/1\."),
        (BUSY, r"answered 429 to GET /schemas/ids/1\."),
        (CLOSED, "did not answer GET /schemas/ids/1: the connection was closed without an answer"),
        (RESET, "did not answer GET /schemas/ids/1: Connection reset by peer"),
        (CUT, "did not answer GET /schemas/ids/1: the answer is incomplete"),
        (HANG, "did not answer GET /schemas/ids/1: no answer within 1 s"),
    ],
    ids=["500", "429", "closed", "reset", "cut", "hang"],
)
def test_a_fault_that_remains_is_an_error_that_airflow_retries(
    registry: TestRegistry, fault: HttpFault, why: str
) -> None:
    registry.register(registry.subject(), SCHEMA)
    with FaultProxy(registry.server.url, itertools.repeat(fault), method="GET") as proxy:
        settings = behind(proxy, registry, timeout_s=1)
        with pytest.raises(RegistryUnavailable, match=why) as caught:
            RegistryClient(settings, patience_s=0.5).by_id(1)
        assert proxy.url in str(caught.value)
        assert len(proxy.seen) >= 1


def test_a_registry_that_is_down_is_named() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    settings = RegistrySettings(urls=(url,), username="me", password="a-secret", timeout_s=1)
    with pytest.raises(RegistryUnavailable, match=rf"{url} did not answer.*refused") as caught:
        RegistryClient(settings, patience_s=0.0).subjects()
    assert "a-secret" not in str(caught.value)


def test_the_next_url_is_used_if_a_server_is_down(registry: TestRegistry) -> None:
    subject = registry.subject()
    registry.register(subject, SCHEMA)
    down = f"http://127.0.0.1:{free_port()}"
    client = registry.client(urls=f"{down}, {registry.server.url}")
    assert [one.text for one in client.versions(subject)] == [SCHEMA]


class Answering(FaultProxy):
    """A proxy whose server is a function: each request gets this answer."""

    def __init__(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        super().__init__("http://127.0.0.1:1", remember=True)
        self._reply = Reply(status=status, headers=list(headers), body=body)

    def forward(self, seen: Seen) -> Reply:
        """Return the answer."""
        return self._reply


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"<html>Log in</html>", "expected JSON, found '<html>Log in</html>'"),
        (b"", "expected JSON, found ''"),
        (b"[" * 100_000, "expected JSON"),
        (b"9" * 10_000, "expected JSON"),
        (b"\xff\xfe", "expected JSON"),
        (b"null", "expected an object, found None"),
        (b"[]", r"expected an object, found \[\]"),
        (b"{}", "expected a text as schema, found None"),
        (b'{"schema": 1}', "expected a text as schema, found 1"),
        (b'{"schema": "\\ud800"}', r"expected a text as schema, found '\\ud800'"),
        (b'{"schema": "s", "schemaType": "XML"}', "expected a schemaType of AVRO, PROTOBUF, JSON"),
        (
            b'{"schema": "s", "schemaType": []}',
            r"expected a schemaType of AVRO, PROTOBUF, JSON, found \[\]",
        ),
        (b'{"schema": "s", "references": "r"}', "expected references as a list of objects"),
        (b'{"schema": "s", "references": [1]}', "expected references as a list of objects"),
        (b'{"schema": "s", "references": [{}]}', "expected a text as name, found None"),
        (
            b'{"schema": "s", "references": [{"name": "n", "subject": "s", "version": true}]}',
            "expected an integer as version, found True",
        ),
    ],
)
def test_an_answer_that_is_none_is_refused_and_not_retried(body: bytes, why: str) -> None:
    with Answering(200, body) as proxy:
        client = RegistryClient(RegistrySettings(urls=(proxy.url,)), patience_s=PATIENCE_S)
        with pytest.raises(RegistryRefused, match=why) as caught:
            client.by_id(1)
        assert f"schema registry at {proxy.url}, GET /schemas/ids/1" in str(caught.value)
        assert len(proxy.seen) == 1


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"subject": "other", "version": 1, "id": 1, "schema": "s"}', "expected version 1 of s"),
        (b'{"subject": "s", "version": 2, "id": 1, "schema": "s"}', "expected version 1 of s"),
        (b'{"subject": "s", "version": 1, "schema": "s"}', "expected an integer as id, found None"),
        (b'{"subject": "s", "version": 1, "id": -1, "schema": "s"}', "expected an id from 0 to"),
        (b'{"subject": "s", "version": 1, "id": 2147483648, "schema": "s"}', "expected an id"),
    ],
)
def test_a_version_that_is_not_the_requested_one_is_refused(body: bytes, why: str) -> None:
    with Answering(200, body) as proxy, pytest.raises(RegistryRefused, match=why):
        RegistryClient(RegistrySettings(urls=(proxy.url,)), patience_s=0.0).version("s", 1)


def test_too_many_versions_are_refused_before_they_are_read() -> None:
    numbers = str(list(range(1, VERSIONS_MAX + 2))).encode()
    with Answering(200, numbers) as proxy:
        client = RegistryClient(RegistrySettings(urls=(proxy.url,)), patience_s=0.0)
        with pytest.raises(RegistryRefused, match="at most 1000 versions, found 1001"):
            client.versions("s")
        assert len(proxy.seen) == 1


@pytest.mark.parametrize("length", [100, 101])
def test_an_answer_has_at_most_the_bytes_of_the_limit(length: int) -> None:
    body = b'["a"]'.ljust(length)
    with Answering(200, body) as proxy:
        settings = RegistrySettings(urls=(proxy.url,))
        client = RegistryClient(settings, patience_s=PATIENCE_S, answer_bytes_max=100)
        if length <= 100:
            assert client.subjects() == ("a",)
            return
        with pytest.raises(RegistryRefused, match="at most 100 bytes, found more"):
            client.subjects()
        assert len(proxy.seen) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with Answering(200, b"[]") as other:
        location = ("Location", other.url)
        with Answering(status, b"", location) as proxy:
            settings = RegistrySettings(urls=(proxy.url,), bearer_token="a-secret-token")
            with pytest.raises(RegistryRefused, match=f"answered {status}") as caught:
                RegistryClient(settings, patience_s=PATIENCE_S).subjects()
            assert "redirects are not followed" in caught.value.hint
        assert other.seen == ()


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_are_not_retried_or_shown(status: int) -> None:
    body = b'{"error_code": 40101, "message": "who is a-secret-token?"}'
    with Answering(status, body) as proxy:
        settings = RegistrySettings(urls=(proxy.url,), bearer_token="a-secret-token")
        with pytest.raises(RegistryRefused, match=f"answered {status}.*who is ") as caught:
            RegistryClient(settings, patience_s=PATIENCE_S).subjects()
        assert proxy.seen[0].headers["Authorization"] == "Bearer a-secret-token"
        assert len(proxy.seen) == 1
    assert "a-secret" not in f"{caught.value}{caught.value.__context__}"


@contextmanager
def dripping() -> Iterator[str]:
    """Yield the url of a server that sends its answer byte by byte, and never ends."""
    ended = threading.Event()

    class Drip(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            try:
                while not ended.wait(0.05):
                    self.wfile.write(b"[")
            except OSError:
                pass

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Drip)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


def test_an_answer_that_never_ends_is_a_timeout() -> None:
    with dripping() as url, pytest.raises(RegistryUnavailable, match="no answer within 1 s"):
        RegistryClient(RegistrySettings(urls=(url,), timeout_s=1), patience_s=0.0).subjects()


@contextmanager
def tls_server(certificate: Path, *, wants_client: bool = False) -> Iterator[str]:
    """Yield the url of a server with TLS and no subjects; if `wants_client`, clients must have its own certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    if wants_client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificate)

    class Empty(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Ignore refused handshakes."""

    server = Quiet(("127.0.0.1", 0), Empty)
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_the_certificate_of_a_registry_is_checked(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path / "own.pem")
    with tls_server(certificate) as url:
        with pytest.raises(SettingsError, match="self-signed certificate"):
            RegistryClient(RegistrySettings(urls=(url,)), patience_s=PATIENCE_S).subjects()
        trusting = RegistrySettings(urls=(url,), cafile=str(certificate))
        assert RegistryClient(trusting, patience_s=0.0).subjects() == ()
        with pytest.raises(SettingsError, match=r"cafile /nowhere\.pem cannot be used"):
            RegistryClient(RegistrySettings(urls=(url,), cafile="/nowhere.pem"))


def test_a_registry_can_require_a_client_certificate(tmp_path: Path) -> None:
    certificate = str(self_signed(tmp_path / "own.pem"))
    encrypted = str(self_signed(tmp_path / "encrypted.pem", password="a-secret"))
    with tls_server(Path(certificate), wants_client=True) as url:
        without = RegistrySettings(urls=(url,), cafile=certificate)
        with pytest.raises(TallystickError) as caught:
            RegistryClient(without, patience_s=0.0).subjects()
        assert type(caught.value) is RegistryUnavailable
        own = RegistrySettings(urls=(url,), cafile=certificate, certfile=certificate)
        assert RegistryClient(own, patience_s=0.0).subjects() == ()
        with pytest.raises(SettingsError, match=r"certfile .*encrypted\.pem cannot be used"):
            RegistryClient(
                RegistrySettings(urls=(url,), certfile=encrypted, key_password="wrong-secret")
            )
