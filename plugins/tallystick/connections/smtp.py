"""The settings of a mail server: a frozen value, checked when it is built, that never shows a secret."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from tallystick.connections.settings import Settings, check_timeout, unusable

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
            raise unusable(
                f"unknown security {self.security!r}", f"use one of {', '.join(SECURITIES)}."
            )
        if not self.host or any(sign in self.host for sign in "@/: \t\n"):
            raise unusable(
                "host is not a host name", "write the name alone: port has a setting of its own."
            )
        if not 0 <= self.port < 65536:
            raise unusable(
                f"port: expected 1 to 65535, found {self.port}", "set a value in this range."
            )
        if (self.username is None) != (self.password is None):
            raise unusable("only one of username and password is set", "set both or neither.")
        if self.password is not None and self.security == "none":
            raise unusable(
                "security none would send the password unencrypted", "use starttls or tls."
            )
        if self.port == 0:
            object.__setattr__(self, "port", SECURE_PORTS[self.security])

    def secrets(self) -> tuple[str, ...]:
        """Return the values that no message may contain."""
        return (self.password,) if self.password else ()
