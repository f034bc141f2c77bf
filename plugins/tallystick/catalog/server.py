"""The HTTP server of the catalog, with TLS if it has a certificate. SIGTERM and SIGINT end it within seconds."""

from __future__ import annotations

import logging
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import uvicorn

from tallystick.catalog.access import AccessGuard, is_loopback
from tallystick.errors import SettingsError

ENDS_WITHIN_S = 3
HEADERS_BYTES_MAX = 64 << 10
CONNECTIONS_MAX = 1000
BACKLOG = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The certificate (with the chain that clients need) and its private key, as PEM files. The key has no password."""

    certificate: Path
    key: Path

    def check(self) -> None:
        """Raise SettingsError if the files cannot be used together."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # Without a password function, OpenSSL would read one from the terminal.
            context.load_cert_chain(self.certificate, self.key, password=lambda: b"")
        except (OSError, ValueError) as error:
            reason = error.reason if isinstance(error, ssl.SSLError) else error
            raise SettingsError(
                f"--tls {self.certificate} {self.key}: expected a certificate and its key without a password, "
                f"found: {reason}.",
                hint="name two PEM files: the certificate with its chain, and the private key.",
            ) from None


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens on a free port (0: any) of a host; raises SettingsError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            found.bind(address)
            found.listen(BACKLOG)
        except OSError:
            found.close()
            raise
        return found
    except OSError as error:
        raise SettingsError(
            f"{host}:{port}: expected a free address of this machine, found: {error.strerror}.",
            hint="use another --port, or end the process that has it.",
        ) from None


def is_bound_to_loopback(listening: socket.socket) -> bool:
    """Return True if only this machine reaches a socket."""
    return is_loopback(str(listening.getsockname()[0]))


def server(app: AccessGuard, *, tls: TlsFiles | None = None) -> uvicorn.Server:
    """Return a server for `run(sockets=[...])`. It writes no line of its own per request: the app does."""
    # One line for each connection that is reset, and the start, would only repeat what the app's own log has.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    config = uvicorn.Config(
        cast("Any", app),
        http="h11",  # the implementation that limits the size of headers
        loop="asyncio",  # uvloop, if it is installed, does not end while a TLS connection is idle
        h11_max_incomplete_event_size=HEADERS_BYTES_MAX,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS_MAX,
        backlog=BACKLOG,
        timeout_graceful_shutdown=ENDS_WITHIN_S,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.key,
    )
    return uvicorn.Server(config)
