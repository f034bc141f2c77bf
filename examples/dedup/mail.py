"""The mail server of an example: accepts e-mails by RFC 5321 and logs them, as any mail server does.

It runs in the runner's process, on a free port of the loopback interface, as long as the runner does.
"""

from __future__ import annotations

import email
import email.policy
import socketserver
import threading
from typing import Any

from examples.dedup.check import Mail

# The limit of the wait for a client that neither sends nor disconnects.
_IDLE_S = 120.0


class MailServer:
    """Accepts every e-mail; after `withhold(nth)`, the nth e-mail from then on is accepted and gets no 250."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._log: list[Mail] = []
        self._withheld: int | None = None
        bound = type("Bound", (_Connection,), {"owner": self})
        self._server = _Server(("127.0.0.1", 0), bound)
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(self._server.server_address[1])

    @property
    def log(self) -> tuple[Mail, ...]:
        """Every e-mail that was accepted, in order."""
        with self._lock:
            return tuple(self._log)

    def withhold(self, nth: int) -> None:
        """Accept the nth e-mail from now on without a reply, and wait until its client disconnects: a lost 250."""
        with self._lock:
            self._withheld = len(self._log) + nth

    def accept(self, text: bytes, to: str) -> bool:
        """Write an e-mail to the log; return True if it gets a reply."""
        message = email.message_from_bytes(text, policy=email.policy.SMTP)
        mail = Mail(
            message_id=str(message["Message-ID"]).strip("<>"),
            to=to,
            subject=str(message["Subject"]),
        )
        with self._lock:
            self._log.append(mail)
            return len(self._log) != self._withheld


class _Connection(socketserver.StreamRequestHandler):
    """One connection."""

    owner: MailServer
    timeout = _IDLE_S

    def handle(self) -> None:
        """Reply to the client until it disconnects."""
        self._reply("220 ready")
        to = ""
        while line := self.rfile.readline().decode().strip():
            verb, _, rest = line.partition(" ")
            if verb.upper() == "RCPT":
                to = rest.partition("<")[2].partition(">")[0]
            if verb.upper() != "DATA":
                self._reply("221 closing" if verb.upper() == "QUIT" else "250 ok")
            elif not self._accept(to):
                self.rfile.read()  # returns when the client disconnects
                return

    def _accept(self, to: str) -> bool:
        self._reply("354 continue")
        lines: list[bytes] = []
        while (line := self.rfile.readline()) != b".\r\n":
            if not line:
                return False  # it disconnected within the text: nothing was accepted
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        if not self.owner.accept(b"".join(lines), to):
            return False
        self._reply("250 accepted")
        return True

    def _reply(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: a publisher that is killed does not close its connection."""
