"""A mail server on a real socket: it accepts e-mails according to RFC 5321, and can fail at each step.

`faults` maps the number of a text (DATA) to its fault: `451` or `554` is answered instead of 250, `take then drop`
accepts the text and closes the connection without the 250, `drop` closes it before it has accepted the text.
"""

from __future__ import annotations

import base64
import email
import email.policy
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from pathlib import Path
from typing import Any


@dataclass
class Post:
    """The settings of the server, and the e-mails that it has accepted."""

    faults: dict[int, str] = field(default_factory=dict)
    refuses: dict[str, str] = field(default_factory=dict)  # answers to RCPT, by address
    password: str | None = None
    certificate: Path | None = None
    hangs_up_after: int | None = None  # e-mails per connection
    step: Callable[[str], None] = lambda what: None
    taken: list[EmailMessage] = field(default_factory=list)
    envelopes: list[tuple[str, str]] = field(default_factory=list)
    texts: int = 0
    connections: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def to(self) -> list[str]:
        """The addresses that got an e-mail, in order."""
        return [to for _, to in self.envelopes]


class Session(socketserver.StreamRequestHandler):
    """One connection."""

    post: Post
    secure = False
    known = False

    def handle(self) -> None:
        """Answer the client until it disconnects."""
        self.post.connections += 1
        self.reply("220 here")
        sender, to, done = "", "", 0
        while line := self.rfile.readline().decode().strip():
            verb, _, rest = line.partition(" ")
            verb = verb.upper()
            if verb in ("EHLO", "HELO"):
                self.greet()
            elif verb == "STARTTLS":
                self.encrypt()
            elif verb == "AUTH":
                self.identify(rest)
            elif self.post.password is not None and not self.known:
                self.reply("530 authentication required")
            elif verb == "MAIL":
                if self.post.hangs_up_after is not None and done >= self.post.hangs_up_after:
                    return
                sender = rest.partition("<")[2].partition(">")[0]
                self.reply("250 ok")
            elif verb == "RCPT":
                to = rest.partition("<")[2].partition(">")[0]
                self.reply(self.post.refuses.get(to, "250 ok"))
            elif verb == "DATA":
                if not self.take(sender, to):
                    return
                done += 1
            else:
                self.reply("250 ok" if verb in ("RSET", "NOOP") else "221 bye")

    def finish(self) -> None:
        """Close the TLS socket, too; the server closes only the plain one."""
        super().finish()
        if self.secure:
            self.connection.close()

    def take(self, sender: str, to: str) -> bool:
        """Accept a text, or fail as its fault requires. Return False to close the connection."""
        with self.post.lock:
            fault = self.post.faults.get(self.post.texts, "")
            self.post.texts += 1
        self.reply("354 go on")
        lines: list[bytes] = []
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        if line == b"" or fault == "drop":
            return False
        if fault.isdigit():
            self.reply(f"{fault} not this one")
            return True
        message = email.message_from_bytes(b"".join(lines), policy=email.policy.SMTP)
        assert isinstance(message, EmailMessage)
        with self.post.lock:
            self.post.taken.append(message)
            self.post.envelopes.append((sender, to))
        self.post.step("taken")
        if fault == "take then drop":
            return False
        self.reply("250 taken")
        return True

    def greet(self) -> None:
        """Announce the capabilities."""
        self.reply("250-here")
        if self.post.certificate is not None and not self.secure:
            self.reply("250-STARTTLS")
        self.reply("250 AUTH PLAIN")

    def encrypt(self) -> None:
        """Continue in TLS."""
        assert self.post.certificate is not None
        self.reply("220 now")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.post.certificate)
        self.connection = context.wrap_socket(self.connection, server_side=True)
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb")
        self.secure = True

    def identify(self, rest: str) -> None:
        """Check a password."""
        password = base64.b64decode(rest.split()[1]).decode().split("\0")[2]
        self.known = password == self.post.password
        self.reply("235 welcome" if self.known else f"535 {password} is not the password")

    def reply(self, line: str) -> None:
        """Send one line."""
        self.wfile.write(f"{line}\r\n".encode())
        self.wfile.flush()


class Server(socketserver.ThreadingTCPServer):
    """A server that logs no error of a client that has disconnected."""

    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a publisher that was killed, or that does not trust the certificate."""


@contextmanager
def mail_server(post: Post, *, port: int = 0) -> Iterator[int]:
    """Serve on the loopback interface; yields the port."""
    server = Server(("127.0.0.1", port), type("Bound", (Session,), {"post": post}))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
