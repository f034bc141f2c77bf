"""Connections to brokers, with private parts of kafka-python.

kafka-python (pinned to 3.0.x, with a contract test) provides connections, TLS, SASL and the protocol's schemas. Its
connection manager and network loop are not public. Only this module uses these parts of them:

    NetworkSelector(...).run / .poll / .sleep / .close / .wait_read / .wait_write / .call_soon_with_future
    KafkaConnectionManager(net, ...).bootstrap / .send / .get_connection / .reset_backoff / .close / .cluster
    KafkaConnectionManager.broker_version
    KafkaConnectionManager.least_loaded_node, ._conns, KafkaConnection.paused, ._throttle_time (as its own consumer does)
    KafkaConnectionManager._build_transport (overridden), KafkaNetSocket(proxy_url).dns_lookup / .socket / .connect
    KafkaNetClient(net=, manager=), the network client of the library's producer and admin client
    KafkaTCPTransport._sock_recv (overridden for speed), KafkaSSLTransport.handshake (overridden for its deadline)
    KafkaConnection.parser, KafkaProtocol.receive_bytes (replaced with the former), KafkaProtocol._process_response

The calling thread drives the loop: no thread of tallystick's outlives a call, forking is safe, and an abandoned read
leaves nothing running. One connection belongs to one thread.
"""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, Final, Self, TypeVar

import kafka.errors as kerrors
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.tls import tls_context
from tallystick.errors import KafkaUnavailable, LogDamaged, SettingsError, TallystickError
from tallystick.kafka.responses import Receiver, Response

T = TypeVar("T")
RESPONSE_BYTES_MAX: Final = 256 << 20
_BACKOFF_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
_PROBE_MS: Final = 3_000
_SETUP_MS: Final = 10_000
_SETUP_MS_MAX: Final = 30_000


class _NoWireDumps(logging.Filter):
    """A log filter that drops kafka-python's debug lines with whole requests: one of them contains the SASL password."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno > logging.DEBUG


_NO_WIRE_DUMPS = _NoWireDumps()
for _name in ("kafka.protocol.parser", "kafka.net.connection", "kafka.net.manager"):
    logging.getLogger(_name).addFilter(_NO_WIRE_DUMPS)


def _received(
    receiver: Receiver, transport: KafkaTCPTransport
) -> tuple[list[Response], Exception | None]:
    """Return what has arrived on a transport, for the parser of its connection, which takes whole responses here."""
    parser = transport.get_protocol().parser
    parser.receive_bytes = lambda responses: [parser._process_response(one) for one in responses]
    return receiver.receive(transport._sock)


# The library has no types; if it is not installed for mypy, the ignores are unused.
class _PlainTransport(KafkaTCPTransport):  # type: ignore[misc, unused-ignore]
    """The library's transport without TLS, which receives each response into one buffer."""

    def __init__(self, net: Any, sock: socket.socket, receiver: Receiver, *, host: str) -> None:
        super().__init__(net, sock, host=host)
        self._receiver = receiver

    def _sock_recv(self) -> tuple[list[Response], Exception | None]:
        return _received(self._receiver, self)


class _TlsTransport(KafkaSSLTransport):  # type: ignore[misc, unused-ignore]
    """The library's TLS with a deadline: its own handshake waits forever if the peer accepts and sends nothing."""

    def __init__(
        self,
        net: Any,
        sock: socket.socket,
        receiver: Receiver,
        *,
        host: str,
        timeout_at: float | None,
        **options: Any,
    ) -> None:
        super().__init__(net, sock, host=host, **options)
        self._timeout_at = timeout_at
        self._receiver = receiver

    async def handshake(self) -> None:
        while True:
            try:
                self._sock.do_handshake()
                return
            except ssl.SSLWantReadError:
                await self._net.wait_read(self._sock, timeout_at=self._timeout_at)
            except ssl.SSLWantWriteError:
                await self._net.wait_write(self._sock, timeout_at=self._timeout_at)

    def _sock_recv(self) -> tuple[list[Response], Exception | None]:
        return _received(self._receiver, self)


class _Manager(KafkaConnectionManager):  # type: ignore[misc, unused-ignore]
    """The library's manager with tallystick's own transports.

    They receive each response into one buffer. TLS transports have a deadline, which is the only deadline of the requests
    that wait for the connection.
    """

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        sock = await self._socket(node, timeout_at)
        receiver = Receiver(bytes_max=self.config["receive_message_max_bytes"])
        if not self.ssl_enabled:
            return _PlainTransport(self._net, sock, receiver, host=node.host)
        options = {key: value for key, value in self.config.items() if key.startswith("ssl_")}
        try:
            secured = _TlsTransport(
                self._net, sock, receiver, host=node.host, timeout_at=timeout_at, **options
            )
        except BaseException:
            sock.close()
            raise
        try:
            await secured.handshake()
        except BaseException as error:
            secured.close()
            if not isinstance(error, Exception):
                raise
            silent = isinstance(error, kerrors.KafkaTimeoutError)
            why = "no answer in time, is this port TLS?" if silent else error
            raise kerrors.KafkaConnectionError(f"TLS handshake failed: {why}") from None
        return secured

    async def _socket(self, node: Any, timeout_at: float | None) -> socket.socket:
        """Connect to one of a host's addresses, as the library's `create_connection`, but close sockets that fail."""
        factory = KafkaNetSocket(self.config["proxy_url"])
        opened: list[socket.socket] = []
        make = factory.socket

        def recorded(*kind: Any) -> socket.socket:
            opened.append(make(*kind))
            return opened[-1]

        factory.socket = recorded
        why = "DNS Resolution failure"
        for address in factory.dns_lookup(node.host, node.port):
            try:
                sock: socket.socket = await factory.connect(
                    self._net, address, self.config["socket_options"], timeout_at=timeout_at
                )
                opened.clear()
                return sock
            except kerrors.KafkaTimeoutError:
                why = "Connection timed out"
                break
            except kerrors.KafkaConnectionError as error:
                why = str(error.args[0]) if error.args else str(error)
            except OSError as error:
                why = f"unable to connect: {error}"
            finally:
                while opened:
                    opened.pop().close()
        raise kerrors.KafkaConnectionError(why)


def net_client(**configs: Any) -> Any:
    """Return the library's client with tallystick's manager, for its producer and admin client.

    The manager leaves no refused socket open.
    """
    net = NetworkSelector(**configs)
    return KafkaNetClient(net=net, manager=_Manager(net, **configs))


def opened(make: Callable[..., T], **options: Any) -> T:
    """Return a producer, consumer or admin client of the library's on top of `net_client`. Raises what `make` raises.

    If it reaches no broker, this ends its thread. The library leaves the thread running, and it would search for a broker
    forever.
    """
    clients: list[Any] = []

    def kept(**configs: Any) -> Any:
        clients.append(net_client(**configs))
        return clients[-1]

    try:
        return make(**options, kafka_client=kept)
    except BaseException:
        for client in clients:
            client.close()
        raise


class RetriableError(Exception):
    """The failure of a request that may succeed on a retry, perhaps with another broker."""


class Connection:
    """The connections to a cluster's brokers; use it in a `with` statement.

    A failed request raises RetriableError if a retry may help, otherwise a TallystickError with endpoint and setting. No
    request is sent to a broker before its throttle is over (KIP-219), except the library's first one, which it sends
    before it has the broker's version. The wait does not count towards a request's timeout.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self.throttled_s = 0.0  # seconds that requests have waited so far because brokers throttled
        self._net: Any = None
        self._manager: Any = None

    def __enter__(self) -> Self:
        options = self.settings.client_options() | {"ssl_context": tls_context(self.settings)}
        # A request waits for its connection first: neither may take longer than the settings' request timeout.
        setup_ms = min(_SETUP_MS, self.settings.request_timeout_ms)
        setup_ms_max = min(_SETUP_MS_MAX, self.settings.request_timeout_ms)
        # Disable the warning about slow steps of the loop: they are the caller's own work, and the check takes time.
        self._net = NetworkSelector(client_id=self.settings.client_id, slow_task_threshold_secs=0)
        try:
            self._manager = _Manager(
                self._net,
                **options,
                receive_message_max_bytes=RESPONSE_BYTES_MAX,
                socket_connection_setup_timeout_ms=setup_ms,
                socket_connection_setup_timeout_max_ms=setup_ms_max,
            )
            self._bootstrap()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. Safe to repeat: closed connections stay closed."""
        manager, self._manager = self._manager, None
        net, self._net = self._net, None
        if manager is not None:
            manager.close()
        if net is not None:
            net.close()

    def cluster_id(self) -> str:
        """Return the cluster's id, as reported by the first broker that answered."""
        found = self._manager.cluster.cluster_id
        if not found:
            raise KafkaUnavailable(
                f"the cluster at {self.settings.endpoint} did not return its id.",
                hint="try again; if it persists, upgrade the brokers.",
            )
        return str(found)

    def broker_version(self) -> tuple[int, ...]:
        """Return the version of the brokers that the versions of their requests show: a minor release, e.g. (4, 1)."""
        return tuple(int(part) for part in self._manager.broker_version)

    def knows_broker(self, node_id: int) -> bool:
        """Return True if the address of a broker is known; `refresh` adds brokers that joined later."""
        return self._manager.cluster.broker_metadata(node_id) is not None

    def refresh(self) -> None:
        """Fetch the brokers' addresses again."""

        async def refreshed() -> None:
            await self._throttle_over(None)
            await self._manager.cluster.refresh_metadata()

        self._run(refreshed)

    def call(self, request: Any, node_id: int | None = None) -> Any:
        """Send a request to broker `node_id`, to any broker if it is None, and wait for the answer."""
        return self._run(self._sent, request, node_id)

    def send(self, request: Any, node_id: int) -> Any:
        """Send a request without waiting. Returns a future for `wait`."""
        try:
            if self._throttle_left_s(node_id) is None:
                future = self._manager.send(request, node_id=node_id)
            else:  # the library would refuse it now; the caller may continue until `wait`
                future = self._net.call_soon_with_future(self._sent, request, node_id)
        except (kerrors.KafkaError, OSError, ValueError, RuntimeError) as error:
            raise self.failure(error) from error
        # Two steps send the request: the first registers the socket for writing, the second writes.
        for _ in range(2):
            self._net.poll(timeout_ms=0)
        return future

    def wait(self, future: Any) -> Any:
        """Wait for the answer to a request that was sent."""
        while not future.is_done:
            # This loop ends. A throttle ends at the time that the broker gave. The library fails a request when its
            # timeout has passed, or, if it still waits for its connection, when the connection's set-up fails, which
            # has a deadline (also in TLS: `_TlsTransport`).
            self._net.poll(future=future)
        if future.exception is not None:
            raise self.failure(future.exception) from future.exception
        return future.value

    def pause(self, attempt: int) -> None:
        """Wait before another attempt, longer after more attempts; the network loop runs meanwhile."""
        self._net.run(self._net.sleep, _BACKOFF_S[min(attempt, len(_BACKOFF_S) - 1)])

    def unavailable(self, what: str, why: object) -> KafkaUnavailable:
        """Build the error for a broker that does not give `what`."""
        return KafkaUnavailable(
            f"Kafka at {self.settings.endpoint} did not return {what}: {why}.",
            hint="check that the brokers are up and that bootstrap_servers of the connection names them; "
            "then try again.",
        )

    def check(self, error_code: int, what: str) -> None:
        """Raise the RetriableError or TallystickError of a broker's error code about `what`; return if the code is 0."""
        if error_code:
            raise self.failure(kerrors.for_code(error_code)(what))

    def failure(self, error: BaseException) -> Exception:
        """Return a RetriableError if a retry may help, otherwise the TallystickError with a hint."""
        if isinstance(error, RetriableError | TallystickError):
            return error
        retriable = isinstance(error, OSError) or getattr(error, "retriable", False)
        if retriable and not isinstance(error, kerrors.CorrelationIdError):
            return RetriableError(self._brief(error))
        return self._translated(error, "an answer")

    async def _sent(self, request: Any, node_id: int | None) -> Any:
        await self._throttle_over(node_id)
        return await self._manager.send(request, node_id)

    async def _throttle_over(self, node_id: int | None) -> None:
        while (left_s := self._throttle_left_s(node_id)) is not None:
            await self._net.sleep(left_s)
            # Add the throttle, not the elapsed time: the loop does not run while the caller works.
            self.throttled_s += left_s

    def _throttle_left_s(self, node_id: int | None) -> float | None:
        """Return the seconds for which a broker throttles, None if it accepts a request.

        Without `node_id`: None if any broker accepts a request, otherwise the seconds until the first one does.
        """
        if node_id is None and self._manager.least_loaded_node() is not None:
            return None
        # The library ends a throttle in its loop, a moment after the throttle time: until then it refuses requests.
        ends = [
            one._throttle_time
            for one in self._manager._conns.values()
            if "throttle" in one.paused and node_id in (None, one.node_id)
        ]
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def _bootstrap(self) -> None:
        if self.settings.security_protocol != "PLAINTEXT":
            self._authenticate()
        try:
            self._manager.bootstrap(self.settings.bootstrap_timeout_ms)
        except (kerrors.KafkaTimeoutError, kerrors.NodeNotReadyError):
            raise self._unreachable() from None
        except (kerrors.KafkaError, OSError, ValueError, RuntimeError) as error:
            raise self._translated(error, "its metadata") from error

    def _authenticate(self) -> None:
        """Log in once before the library does: it would retry a wrong password until its timeout.

        The library continues with this connection.
        """
        for broker in self._manager.cluster.bootstrap_brokers():
            try:
                self._run(self._first_contact, broker.node_id)
            except RetriableError:
                continue  # not a matter of credentials: this broker, or another one, may answer the library later
            return

    def _unreachable(self) -> TallystickError:
        """Build the error from one more attempt at each server: the library retries and does not keep the reasons."""
        why = []
        for broker in self._manager.cluster.bootstrap_brokers():
            self._manager.reset_backoff(broker.node_id)
            try:
                self._run(self._first_contact, broker.node_id)
                why.append(
                    f"{broker.host}:{broker.port} answered, but named no usable broker in time"
                )
            except (RetriableError, kerrors.KafkaError, OSError) as error:
                why.append(f"{broker.host}:{broker.port}: {self._brief(error)}")
        text = "; ".join(why)
        if "CERTIFICATE_VERIFY_FAILED" in text or "Hostname mismatch" in text:
            return SettingsError(
                f"Kafka at {self.settings.endpoint} has a certificate that cannot be verified: {text}.",
                hint="check ssl_cafile of the connection, and that bootstrap_servers names the certificate's host.",
            )
        return self.unavailable("its metadata", text)

    async def _first_contact(self, node_id: str) -> None:
        timeout_ms = min(_PROBE_MS, self.settings.bootstrap_timeout_ms)
        await self._manager.get_connection(
            node_id, timeout_ms=timeout_ms, refresh_metadata_on_err=False
        )

    def _run(self, step: Callable[..., Any], *words: Any) -> Any:
        try:
            return self._net.run(step, *words)
        except (kerrors.KafkaError, OSError, ValueError, RuntimeError) as error:
            raise self.failure(error) from error

    def _translated(self, error: BaseException, what: str) -> TallystickError:
        endpoint, why = self.settings.endpoint, self._brief(error)
        if isinstance(
            error, kerrors.SaslAuthenticationFailedError | kerrors.UnsupportedSaslMechanismError
        ):
            return SettingsError(
                f"Kafka at {endpoint} refused to authenticate user {self.settings.sasl_plain_username!r}.",
                hint="check sasl_mechanism, sasl_plain_username and sasl_plain_password of the connection.",
            )
        if isinstance(error, kerrors.AuthorizationError):
            return SettingsError(
                f"Kafka at {endpoint} does not allow this: {why}.",
                hint="grant READ and DESCRIBE and DESCRIBE_CONFIGS on the topic to the connection's user.",
            )
        if isinstance(error, kerrors.UnsupportedVersionError):
            return SettingsError(
                f"Kafka at {endpoint} is too old: {why}.",
                hint="use brokers of version 3.1 or newer (topic ids).",
            )
        if isinstance(error, kerrors.InvalidReceiveError):
            # If no broker has answered as Kafka yet, a length out of bounds is the first bytes of another protocol.
            if self._manager is None or not self._manager.cluster.cluster_id:
                return SettingsError(
                    f"the server at {endpoint} does not speak Kafka in plain text ({why}).",
                    hint="check bootstrap_servers and security_protocol of the connection: is this port TLS?",
                )
            return LogDamaged(
                f"{endpoint}: expected a Kafka answer of at most {RESPONSE_BYTES_MAX} bytes, found a larger one or "
                "another protocol.",
                hint="check bootstrap_servers and security_protocol; batches beyond that size cannot be read.",
            )
        if isinstance(error, kerrors.KafkaConfigurationError | OSError | ValueError):
            return SettingsError(
                f"the connection to Kafka at {endpoint} cannot be set up: {why}.",
                hint="check the ssl_* files, proxy_url and sasl_mechanism of the connection.",
            )
        return self.unavailable(what, why)

    def _brief(self, error: BaseException) -> str:
        """Return the error's text, shortened, without any secret that a library may have put into it."""
        text = str(error).strip() or type(error).__name__
        for secret in self.settings.secrets():
            text = text.replace(secret, "***")
        return text if len(text) <= 300 else text[:300] + "..."
