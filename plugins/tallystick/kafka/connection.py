"""Connections to brokers: the one module that touches kafka-python's private parts.

kafka-python (pinned to 3.0.x, with a contract test) gives connections, TLS, SASL and the protocol's schemas. Its
connection manager and network loop are not public; what is used of them is used here and nowhere else:

    NetworkSelector(...).run / .poll / .sleep / .close / .wait_read / .wait_write / .call_soon_with_future
    KafkaConnectionManager(net, ...).bootstrap / .send / .get_connection / .reset_backoff / .close / .cluster
    KafkaConnectionManager.least_loaded_node, ._conns, KafkaConnection.paused, ._throttle_time (as its own consumer does)
    KafkaConnectionManager._build_transport (overridden), KafkaNetSocket(proxy_url).dns_lookup / .socket / .connect
    KafkaNetClient(net=, manager=), what the library's producer and admin client talk through
    KafkaTCPTransport._sock_recv (overridden for speed), KafkaSSLTransport.handshake (overridden for its deadline)

The loop is driven by the calling thread: no thread of ours outlives a call, forking is safe, and whoever abandons a
read leaves nothing running. One connection belongs to one thread.
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

T = TypeVar("T")
RESPONSE_BYTES_MAX: Final = 256 << 20
_BACKOFF_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
_PROBE_MS: Final = 3_000
_SETUP_MS: Final = 10_000
_SETUP_MS_MAX: Final = 30_000


class _NoWireDumps(logging.Filter):
    """Drops kafka-python's debug lines that print whole requests: one of them carries the SASL password."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno > logging.DEBUG


_NO_WIRE_DUMPS = _NoWireDumps()
for _name in ("kafka.protocol.parser", "kafka.net.connection", "kafka.net.manager"):
    logging.getLogger(_name).addFilter(_NO_WIRE_DUMPS)


_RECEIVE_BYTES: Final = 64 << 10


# The library has no types; where it is not installed for mypy, the ignores are unused.
class _TlsTransport(KafkaSSLTransport):  # type: ignore[misc, unused-ignore]
    """The library's TLS with a deadline: its own handshake waits for ever on a peer that accepts and says nothing."""

    def __init__(
        self, net: Any, sock: socket.socket, *, host: str, timeout_at: float | None, **options: Any
    ) -> None:
        super().__init__(net, sock, host=host, **options)
        self._timeout_at = timeout_at

    async def handshake(self) -> None:
        while True:
            try:
                self._sock.do_handshake()
                return
            except ssl.SSLWantReadError:
                await self._net.wait_read(self._sock, timeout_at=self._timeout_at)
            except ssl.SSLWantWriteError:
                await self._net.wait_write(self._sock, timeout_at=self._timeout_at)

    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        return _receive(self._sock)


class _Manager(KafkaConnectionManager):  # type: ignore[misc, unused-ignore]
    """The library's manager with transports of our own.

    Plain ones receive in large parts: the library asks the kernel for 4 KiB at a time, 512 calls for a fetch. Those of
    TLS give up in time; the requests that wait for a connection have no other deadline than the connection's.
    """

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        sock = await self._socket(node, timeout_at)
        if not self.ssl_enabled:
            plain = KafkaTCPTransport(self._net, sock, host=node.host)
            plain._sock_recv = lambda: _receive(plain._sock)
            return plain
        options = {key: value for key, value in self.config.items() if key.startswith("ssl_")}
        try:
            secured = _TlsTransport(
                self._net, sock, host=node.host, timeout_at=timeout_at, **options
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
        """Connect to one of a host's addresses: the library's `create_connection`, which leaves open what fails."""
        factory = KafkaNetSocket(self.config["proxy_url"])
        opened: list[socket.socket] = []
        make = factory.socket

        def kept(*kind: Any) -> socket.socket:
            opened.append(make(*kind))
            return opened[-1]

        factory.socket = kept
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


def _receive(sock: socket.socket) -> tuple[bytes, Exception | None]:
    """What has arrived, or the error that ended it: the transport's own `_sock_recv`, but for one thing.

    Bytes that came before an end are handed on first; the end is found again by the next call. The library drops them,
    and with them the reason why a broker closes: it refuses a password and hangs up in one go.
    """
    arrived = []
    error = None
    while True:
        try:
            part = sock.recv(_RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            break
        except OSError as failed:
            error = kerrors.KafkaConnectionError(failed)
            break
        if not part:
            error = kerrors.KafkaConnectionError("socket disconnected")
            break
        arrived.append(part)
    return b"".join(arrived), None if arrived else error


def net_client(**configs: Any) -> Any:
    """The library's client over our manager, for its producer and admin client: no refused socket stays open."""
    net = NetworkSelector(**configs)
    return KafkaNetClient(net=net, manager=_Manager(net, **configs))


def opened(make: Callable[..., T], **options: Any) -> T:
    """A producer, consumer or admin client of the library's, over our client. Raises what `make` raises.

    Where it reaches no broker, its thread is ended: the library leaves it, and it would look for one for ever.
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


class Retriable(Exception):
    """A request failed in a way that asking again, perhaps another broker, may mend."""


class Connection:
    """Requests to a cluster's brokers; opened by `with`.

    A failed request is Retriable where asking again may help, else a TallystickError naming endpoint and setting. No
    request is sent to a broker before its throttle is over (KIP-219), but for the library's first one, whose broker's
    version it does not know yet; the wait is no part of a request's timeout.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self.throttled_s = 0.0  # seconds that requests have waited so far because brokers wanted it
        self._net: Any = None
        self._manager: Any = None

    def __enter__(self) -> Self:
        options = self.settings.client_options() | {"ssl_context": tls_context(self.settings)}
        # A request waits for its connection first: neither may outlast what the settings allow a request.
        setup_ms = min(_SETUP_MS, self.settings.request_timeout_ms)
        setup_ms_max = min(_SETUP_MS_MAX, self.settings.request_timeout_ms)
        # A slow step of the loop is our own caller at work; the watch on it costs time and logs noise.
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
        """Close all connections. Safe to repeat: what is closed stays closed."""
        manager, self._manager = self._manager, None
        net, self._net = self._net, None
        if manager is not None:
            manager.close()
        if net is not None:
            net.close()

    def cluster_id(self) -> str:
        """The cluster's id, as the first broker that answered knows it."""
        found = self._manager.cluster.cluster_id
        if not found:
            raise KafkaUnavailable(
                f"the cluster at {self.settings.endpoint} did not say its id.",
                hint="try again; if it stays, upgrade the brokers.",
            )
        return str(found)

    def knows_broker(self, node_id: int) -> bool:
        """Whether the address of a broker is known; `refresh` learns of brokers that joined later."""
        return self._manager.cluster.broker_metadata(node_id) is not None

    def refresh(self) -> None:
        """Learn the brokers' addresses anew."""

        async def refreshed() -> None:
            await self._throttle_over(None)
            await self._manager.cluster.refresh_metadata()

        self._run(refreshed)

    def call(self, request: Any, node_id: int | None = None) -> Any:
        """Send a request, to any broker without `node_id`, and wait for the answer."""
        return self._run(self._sent, request, node_id)

    def send(self, request: Any, node_id: int) -> Any:
        """Send a request without waiting; `wait` takes what this returns."""
        try:
            if self._throttle_left_s(node_id) is None:
                future = self._manager.send(request, node_id=node_id)
            else:  # the library would refuse it; the caller may work on until `wait`
                future = self._net.call_soon_with_future(self._sent, request, node_id)
        except (kerrors.KafkaError, OSError, ValueError, RuntimeError) as error:
            raise self.failure(error) from error
        # Two steps put the request on the wire: one registers for writing, one writes.
        for _ in range(2):
            self._net.poll(timeout_ms=0)
        return future

    def wait(self, future: Any) -> Any:
        """Wait for the answer to a request that was sent."""
        while not future.is_done:
            # Bounded: a throttle ends at the time that the broker named, the library fails a request when its timeout
            # has passed, and those that still wait for their connection when its set-up ends, which has a deadline
            # (also in TLS: `_TlsTransport`).
            self._net.poll(future=future)
        if future.exception is not None:
            raise self.failure(future.exception) from future.exception
        return future.value

    def pause(self, attempt: int) -> None:
        """Wait before another attempt, longer the more there were, while connections are kept going."""
        self._net.run(self._net.sleep, _BACKOFF_S[min(attempt, len(_BACKOFF_S) - 1)])

    def unavailable(self, what: str, why: object) -> KafkaUnavailable:
        """Build the error for a broker that does not give `what`."""
        return KafkaUnavailable(
            f"Kafka at {self.settings.endpoint} did not give {what}: {why}.",
            hint="check that the brokers are up and that bootstrap_servers of the connection names them; "
            "then retry.",
        )

    def check(self, error_code: int, what: str) -> None:
        """Raise what a broker's error code about `what` means: Retriable or a TallystickError."""
        if error_code:
            raise self.failure(kerrors.for_code(error_code)(what))

    def failure(self, error: BaseException) -> Exception:
        """Retriable where asking again may help, else the TallystickError that says what to mend."""
        if isinstance(error, Retriable | TallystickError):
            return error
        retriable = isinstance(error, OSError) or getattr(error, "retriable", False)
        if retriable and not isinstance(error, kerrors.CorrelationIdError):
            return Retriable(self._brief(error))
        return self._translated(error, "an answer")

    async def _sent(self, request: Any, node_id: int | None) -> Any:
        await self._throttle_over(node_id)
        return await self._manager.send(request, node_id)

    async def _throttle_over(self, node_id: int | None) -> None:
        while (left_s := self._throttle_left_s(node_id)) is not None:
            await self._net.sleep(left_s)
            # Not what has passed: the loop stands while the caller works on what it has.
            self.throttled_s += left_s

    def _throttle_left_s(self, node_id: int | None) -> float | None:
        """Seconds for which a broker, every broker without `node_id`, wants no request; None where it takes one."""
        if node_id is None and self._manager.least_loaded_node() is not None:
            return None
        # The library ends a throttle on its loop, a moment after its time: until then it refuses requests.
        ends = [
            one._throttle_time
            for one in self._manager._conns.values()
            if "throttle" in one.paused and node_id in (None, one.node_id)
        ]
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def _bootstrap(self) -> None:
        if self.settings.security_protocol != "PLAINTEXT":
            self._introduce()
        try:
            self._manager.bootstrap(self.settings.bootstrap_timeout_ms)
        except (kerrors.KafkaTimeoutError, kerrors.NodeNotReadyError):
            raise self._unreachable() from None
        except (kerrors.KafkaError, OSError, ValueError, RuntimeError) as error:
            raise self._translated(error, "its metadata") from error

    def _introduce(self) -> None:
        """Log in once before the library does: it would try a wrong password until its time is over.

        The connection that this makes is the one that it goes on with.
        """
        for broker in self._manager.cluster.bootstrap_brokers():
            try:
                self._run(self._first_contact, broker.node_id)
            except Retriable:
                continue  # not a matter of who we are: the library may find it, or another one, answering later
            return

    def _unreachable(self) -> TallystickError:
        """Try each server once more to learn why: the library keeps trying and forgets the reasons."""
        why = []
        for broker in self._manager.cluster.bootstrap_brokers():
            self._manager.reset_backoff(broker.node_id)
            try:
                self._run(self._first_contact, broker.node_id)
                why.append(
                    f"{broker.host}:{broker.port} answers, but named no usable broker in time"
                )
            except (Retriable, kerrors.KafkaError, OSError) as error:
                why.append(f"{broker.host}:{broker.port}: {self._brief(error)}")
        text = "; ".join(why)
        if "CERTIFICATE_VERIFY_FAILED" in text or "Hostname mismatch" in text:
            return SettingsError(
                f"Kafka at {self.settings.endpoint} shows a certificate that does not verify: {text}.",
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
            # Before anybody has introduced itself as Kafka, a length beyond all bounds is the beginning of other words.
            if self._manager is None or not self._manager.cluster.cluster_id:
                return SettingsError(
                    f"what answers at {endpoint} does not speak Kafka in plain text ({why}).",
                    hint="check bootstrap_servers and security_protocol of the connection: is this port TLS?",
                )
            return LogDamaged(
                f"Kafka at {endpoint} sent an answer that is larger than {RESPONSE_BYTES_MAX} bytes, or is no Kafka.",
                hint="check bootstrap_servers and security_protocol; batches beyond that size cannot be read.",
            )
        if isinstance(error, kerrors.KafkaConfigurationError | OSError | ValueError):
            return SettingsError(
                f"the connection to Kafka at {endpoint} cannot be set up: {why}.",
                hint="check the ssl_* files, proxy_url and sasl_mechanism of the connection.",
            )
        return self.unavailable(what, why)

    def _brief(self, error: BaseException) -> str:
        """The error's text, shortened, without any secret that a library may have put into it."""
        text = str(error).strip() or type(error).__name__
        for secret in self.settings.secrets():
            text = text.replace(secret, "***")
        return text if len(text) <= 300 else text[:300] + "..."
