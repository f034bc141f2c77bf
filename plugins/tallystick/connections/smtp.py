"""The settings of a mail server: a frozen value, checked when it is built, that never shows a secret."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from tallystick.connections.settings import Settings, check_timeout, unfit

SECURITIES = ("starttls", "tls", "none")
SECURE_PORTS = {"starttls": 587, "tls": 465, "none": 25}


@dataclass(frozen=True, slots=True, kw_only=True)
class SmtpSettings(Settings):
    """A mail server. `security` is `starttls` (before login and mail), `tls` (from the first byte) or `none`."""

    KIND: ClassVar[str] = "smtp"
    TITLE: ClassVar[str] = "SMTP"
    EXAMPLE: ClassVar[str] = '{"host": "mail", "security": "starttls"}'
    OPTIONS: ClassVar[str] = "in docs/reference/outputs.md"

    host: str
    port: int = 0
    security: str = "starttls"
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    cafile: str | None = None
    timeout_s: int = 30

    def __post_init__(self) -> None:
        check_timeout(self.timeout_s)
        if self.security not in SECURITIES:
            raise unfit(
                f"security {self.security!r} is unknown", f"use one of {', '.join(SECURITIES)}."
            )
        if not self.host or any(sign in self.host for sign in "@/: \t\n"):
            raise unfit("host is no host", "write the name alone; port has a word of its own.")
        if not 0 <= self.port < 65536:
            raise unfit(f"port {self.port} is none", "use 1 to 65535.")
        if (self.username is None) != (self.password is None):
            raise unfit("one of username and password is given", "give both, or neither.")
        if self.password is not None and self.security == "none":
            raise unfit("a password would go over a line that all can read", "use starttls or tls.")
        if self.port == 0:
            object.__setattr__(self, "port", SECURE_PORTS[self.security])

    def secrets(self) -> tuple[str, ...]:
        """Return the values that no message may contain."""
        return (self.password,) if self.password else ()
