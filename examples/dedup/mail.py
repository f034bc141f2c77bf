"""The mail server of an example: takes e-mails as RFC 5321 says and keeps a log of them, as any mail server does.

It runs in the runner's process, on a free port of the loopback interface, as long as the runner does.
"""

from __future__ import annotations

import email
import email.policy
import socketserver
import threading
from typing import Any

from examples.dedup.check import Mail

# A client that neither speaks nor goes is not waited for longer.
_SILENT_S = 120.0


class MailServer:
    """Takes every e-mail; with `withhold`, the one that many e-mails later gets no 250 although it is taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._log: list[Mail] = []
        self._withheld: int | None = None
        bound = type("Bound", (_Talk,), {"owner": self})
        self._server = _Server(("127.0.0.1", 0), bound)
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    @property
    def log(self) -> tuple[Mail, ...]:
        """Every e-mail that was taken, in that order."""
        with self._lock:
            return tuple(self._log)

    def withhold(self, nth: int) -> None:
        """Take the nth e-mail from now on without a word, and wait for its client to go: a 250 that never arrives."""
        with self._lock:
            self._withheld = len(self._log) + nth

    def take(self, text: bytes, to: str) -> bool:
        """Write an e-mail into the log; whether to answer."""
        message = email.message_from_bytes(text, policy=email.policy.SMTP)
        taken = Mail(
            message_id=str(message["Message-ID"]).strip("<>"),
            to=to,
            subject=str(message["Subject"]),
        )
        with self._lock:
            self._log.append(taken)
            return len(self._log) != self._withheld


class _Talk(socketserver.StreamRequestHandler):
    """One connection."""

    owner: MailServer
    timeout = _SILENT_S

    def handle(self) -> None:
        """Speak until the client goes."""
        self._say("220 here")
        to = ""
        while line := self.rfile.readline().decode().strip():
            verb, _, rest = line.partition(" ")
            if verb.upper() == "RCPT":
                to = rest.partition("<")[2].partition(">")[0]
            if verb.upper() != "DATA":
                self._say("221 bye" if verb.upper() == "QUIT" else "250 so")
            elif not self._take(to):
                self.rfile.read()  # ends with the client
                return

    def _take(self, to: str) -> bool:
        self._say("354 go on")
        lines: list[bytes] = []
        while (line := self.rfile.readline()) != b".\r\n":
            if not line:
                return False  # it went in the middle of its text: nothing was taken
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        if not self.owner.take(b"".join(lines), to):
            return False
        self._say("250 taken")
        return True

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A publisher that is killed goes without a word: no news here."""
