"""Sends e-mails, at most one per key. A mail server does not honour keys, so each try is noted before it is made.

    <key>.001.try     the first try is about to be made; it takes the key for its row
    <key>.001.no      the server certainly did not accept the try
    <key>.sent        the server has acknowledged the e-mail (250)

If a publisher finds a try without an end, another publisher may be making it, so it waits as long as a try can take.
After that, the e-mail is in doubt: the other publisher died or was frozen between the server's 250 and the note. Then
`in_doubt` decides. If the server refuses an e-mail before the text is sent, there is no doubt: the try is noted only
when the server has accepted the sender and the address.
"""

from __future__ import annotations

import smtplib
import ssl
import time
from collections.abc import Callable
from contextlib import closing
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate

from tallystick.connections.settings import without_secrets
from tallystick.connections.smtp import SmtpSettings
from tallystick.connections.tls import tls_of
from tallystick.errors import OutputRefused, OutputUnavailable, SettingsError
from tallystick.format import keys
from tallystick.outputs.calls.call_log import Tries
from tallystick.outputs.calls.declared import EmailOutput, columns_of, is_address
from tallystick.outputs.calls.effects import Effect, check_keys, effects
from tallystick.outputs.encoding import plain
from tallystick.outputs.port import Publication, Scope
from tallystick.outputs.times import check_times
from tallystick.store import Store

PAUSE_S = 0.2
TRIES_MAX = 20
# A try does not connect: it sends DATA and the text, and waits for the answer: three waits, and one for clock skew.
WAITS_PER_TRY = 4
LINE_MAX = 900


class Mailbox:
    """The output that an EmailOutput declares. `doubt_s` is the time that a try without an end may be under way."""

    def __init__(
        self,
        declared: EmailOutput,
        settings: Callable[[], SmtpSettings],
        store: Store,
        *,
        doubt_s: float | None = None,
    ) -> None:
        self.declared, self._settings_of, self.store = declared, settings, store
        self._doubt_s = doubt_s
        self._settings: SmtpSettings | None = None
        self._server: smtplib.SMTP | None = None
        self._scope: Scope | None = None

    # ------------------------------------------------------------ the port

    def begin(self, scope: Scope) -> None:
        """Resolve the connection. Safe to repeat: nothing is taken, because the first try of each key takes the key."""
        self.close()
        self._scope, self._settings = scope, self._settings_of()

    def prepare(self, publication: Publication) -> None:
        """Refuse null and duplicate keys, invalid addresses and subjects of several lines, before any e-mail is sent.

        Safe to repeat: it only reads.
        """
        self._settings_of()
        check_times(publication)
        check_keys(publication, self.declared.key)
        scope = self._scope or Scope(lake=self.store.uri, pipeline=publication.pipeline)
        with closing(effects(publication, scope, key=self.declared.key, once=True)) as found:
            for effect in found:
                self._composed(publication, effect)

    def publish(self, publication: Publication, *, resumed: bool) -> None:
        """Send one e-mail per key that has none, and note each.

        Safe to repeat: the notes show what was sent. If an e-mail is in doubt, it is held or sent, as `in_doubt`
        defines.
        """
        del resumed  # the notes show what is sent
        assert self._scope is not None, "begin comes first"
        tries = Tries(store=self.store, publication=publication)
        try:
            with closing(
                effects(publication, self._scope, key=self.declared.key, once=True)
            ) as found:
                for effect in found:
                    while not self._finished(publication, effect, tries):
                        pass  # another publisher made this try first: read the notes again
        finally:
            self._disconnect()

    def abort(self, publication: Publication) -> None:
        """Do nothing, because `prepare` sets nothing aside. Safe to repeat."""

    def close(self) -> None:
        """Close the connection. Safe to repeat."""
        self._disconnect()

    # ------------------------------------------------------------ one e-mail

    def _finished(self, publication: Publication, effect: Effect, tries: Tries) -> bool:
        """Send the e-mail, unless none is needed. Return False if another publisher took this try.

        Safe to repeat: see the module.
        """
        number = self._next_try(publication, effect, tries)
        if number is None:
            return True
        message = self._composed(publication, effect)
        server = self._open_envelope(publication, effect, str(message["To"]))
        began = time.monotonic()
        if not tries.begin(effect, number):
            self._disconnect()  # this withdraws the sender and the address
            return False
        if time.monotonic() - began > self._timeout_s:
            # Another publisher waits for this try from its note on, and may stop waiting before this try ends.
            tries.deny(effect, number)
            raise self._unavailable(
                publication, effect, f"writing its note took more than {self._timeout_s:g} s"
            )
        self._deliver(publication, effect, tries, number, server, message)
        tries.acknowledge(effect)
        return True

    def _next_try(self, publication: Publication, effect: Effect, tries: Tries) -> int | None:
        """Return the number of the next try; None if none is needed: the e-mail is sent, or another row has the key."""
        deadline = time.monotonic() + self._wait_s
        while True:
            known = tries.known(effect)
            if known.sent or (known.last and tries.taken_by_another(effect)):
                return None
            if not known.in_doubt or known.last in known.no:
                return self._numbered(publication, effect, known.last + 1)
            if time.monotonic() >= deadline:
                break
            time.sleep(min(PAUSE_S, self._wait_s))
        if self.declared.in_doubt == "hold":
            raise self._in_doubt(publication, effect, tries, known.last)
        return self._numbered(publication, effect, known.last + 1)

    def _numbered(self, publication: Publication, effect: Effect, number: int) -> int:
        if number <= TRIES_MAX:
            return number
        raise OutputRefused(
            f"{publication}, {effect.named}: the mail server acknowledged none of {TRIES_MAX} tries.",
            hint=f"find out why it does not accept <{self._message_id(effect)}>; to try again, remove its notes "
            f"{self._where(effect)}*.no.json and .try.json.",
        )

    def _open_envelope(self, publication: Publication, effect: Effect, to: str) -> smtplib.SMTP:
        """Send the sender and the address to the server, and return the connection.

        If the server refuses them, no try was made, and there is no doubt.
        """
        why = ""
        for fresh in (False, True):
            if fresh or self._server is None:
                self._disconnect()
                self._server = self._connected(publication)
            try:
                code, answer = self._server.mail(self.declared.sender)
                if code == 250:
                    code, answer = self._server.rcpt(to)
            except (smtplib.SMTPException, OSError) as error:
                # A server may close the connection between two e-mails. Nothing of this one was sent: try once more.
                why = type(error).__name__
                continue
            if code not in (250, 251):
                raise self._refused(publication, effect, code, answer)
            return self._server
        self._disconnect()
        raise self._unavailable(publication, effect, f"the connection ended ({why})")

    def _deliver(
        self,
        publication: Publication,
        effect: Effect,
        tries: Tries,
        number: int,
        server: smtplib.SMTP,
        message: EmailMessage,
    ) -> None:
        """Send the text.

        Safe to repeat: never by itself. The try is noted before, and its end after.
        """
        answer: bytes | str
        try:
            code, answer = server.data(message.as_bytes(policy=SMTP))
        except smtplib.SMTPDataError as error:
            code, answer = error.smtp_code, error.smtp_error  # the server refused the command DATA
        except (smtplib.SMTPException, OSError):
            code, answer = 0, b""
        if code == 250:
            return
        self._disconnect()
        if code:
            tries.deny(effect, number)
            raise self._refused(publication, effect, code, answer)
        if self.declared.in_doubt == "hold":
            raise self._in_doubt(publication, effect, tries, number)
        raise self._unavailable(
            publication, effect, "the server did not answer; the e-mail is in doubt"
        )

    # ------------------------------------------------------------ the text

    def _composed(self, publication: Publication, effect: Effect) -> EmailMessage:
        """Return the e-mail of a row. Raises OutputRefused if the row has no valid address, subject or column."""
        to = effect.row.get(self.declared.to)
        if not isinstance(to, str) or not is_address(to):
            found = "null" if to is None else "another value"
            raise self._row_refused(
                publication,
                effect,
                f"expected one plain ASCII address in column {self.declared.to!r}, found {found}",
            )
        subject = self._filled(publication, effect, "subject", self.declared.subject)
        if not subject.isprintable() or len(subject) > LINE_MAX:
            raise self._row_refused(
                publication,
                effect,
                f"expected a subject of at most {LINE_MAX} characters without control characters, found another",
            )
        message = EmailMessage(policy=SMTP)
        message["From"] = self.declared.sender
        message["To"] = to
        message["Subject"] = subject
        message["Date"] = formatdate(usegmt=True)
        message["Message-ID"] = f"<{self._message_id(effect)}>"
        message["X-Idempotency-Key"] = effect.key
        message["X-Tallystick-Interval"] = publication.interval.part
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(self._filled(publication, effect, "body", self.declared.body))
        return message

    def _filled(self, publication: Publication, effect: Effect, what: str, template: str) -> str:
        row = effect.row
        for name in columns_of(self.declared.name, what, template):
            if name not in row:
                raise self._row_refused(
                    publication, effect, f"expected column {name!r} for the {what}, found none"
                )
        texts = {name: "" if value is None else str(plain(value)) for name, value in row.items()}
        return template.format_map(texts)

    def _message_id(self, effect: Effect) -> str:
        return f"{effect.key}@{self.declared.sender.rpartition('@')[2]}"

    # ------------------------------------------------------------ the connection

    def _connected(self, publication: Publication) -> smtplib.SMTP:
        assert self._settings is not None, "begin comes first"
        s = self._settings
        context = tls_of(s.cafile) if s.security != "none" else None
        where = (
            f"{publication}: the mail server of connection {self.declared.smtp} ({s.host}:{s.port})"
        )
        try:
            if s.security == "tls":
                server: smtplib.SMTP = smtplib.SMTP_SSL(
                    s.host, s.port, timeout=s.timeout_s, context=context
                )
            else:
                server = smtplib.SMTP(s.host, s.port, timeout=s.timeout_s)
            try:
                if s.security == "starttls":
                    server.starttls(context=context)
                server.ehlo_or_helo_if_needed()
                if s.username is not None and s.password is not None:
                    server.login(s.username, s.password)
            except BaseException:
                server.close()
                raise
            return server
        except (smtplib.SMTPException, OSError) as error:
            failure = _connection_failed(where, error, s)
        # Raised outside the handler: if it were raised inside, it would keep the library's error as its context.
        raise failure

    def _disconnect(self) -> None:
        """Close the connection without QUIT, which could wait for its answer."""
        if self._server is not None:
            self._server.close()
        self._server = None

    @property
    def _timeout_s(self) -> float:
        assert self._settings is not None, "begin comes first"
        return self._settings.timeout_s

    @property
    def _wait_s(self) -> float:
        return WAITS_PER_TRY * self._timeout_s if self._doubt_s is None else self._doubt_s

    # ------------------------------------------------------------ errors

    def _refused(
        self, publication: Publication, effect: Effect, code: int, answer: bytes | str
    ) -> OutputRefused | OutputUnavailable:
        """Return the error of a refusal: 4xx passes with time, 5xx does not (RFC 5321, 4.2.1)."""
        secrets = self._settings.secrets() if self._settings is not None else ()
        text = f"the mail server answered {code}: {without_secrets(answer, secrets)}"
        if code < 500:
            return self._unavailable(publication, effect, text)
        return OutputRefused(
            f"{publication}, {effect.named}: {text}.",
            hint="correct what the server refuses, and clear `publish`. To continue without this e-mail, write an object "
            f"{self._where(effect)}sent.json with any content first.",
        )

    def _unavailable(self, publication: Publication, effect: Effect, why: str) -> OutputUnavailable:
        return OutputUnavailable(
            f"{publication}, {effect.named}: {why}.",
            hint="wait for the next try, which continues at this point; if it persists, check the mail server.",
        )

    def _in_doubt(
        self, publication: Publication, effect: Effect, tries: Tries, number: int
    ) -> OutputRefused:
        attempt = f"{self._where(effect)}{number:03d}.try.json"
        return OutputRefused(
            f"{publication}, {effect.named}: an e-mail may have been sent, but the server's answer was not noted "
            f"(Message-ID <{self._message_id(effect)}>).",
            hint="check the mail server's log. If the e-mail was accepted, copy "
            f"{attempt} to {self.store.uri}/{tries.where_sent(effect)}; if not, copy it to "
            f"{self._where(effect)}{number:03d}.no.json. Then clear `publish`.",
        )

    def _row_refused(self, publication: Publication, effect: Effect, why: str) -> OutputRefused:
        return OutputRefused(
            f"{publication}: {effect.named}: {why}.",
            hint="fix the job and clear `plan`. Nothing of it was sent, and the tables are committed.",
        )

    def _where(self, effect: Effect) -> str:
        return f"{self.store.uri}/{keys.call_prefix(self.declared.name, effect.digits)}"


def _connection_failed(
    where: str, error: Exception, settings: SmtpSettings
) -> SettingsError | OutputUnavailable:
    if isinstance(error, ssl.SSLCertVerificationError):
        return SettingsError(
            f"{where} is not trusted: {error.verify_message}.",
            hint="set a cafile in the connection that verifies its certificate; the tables are committed.",
        )
    if isinstance(error, smtplib.SMTPAuthenticationError | smtplib.SMTPNotSupportedError):
        what = (
            f"answered {error.smtp_code}: {without_secrets(error.smtp_error, settings.secrets())}"
            if isinstance(error, smtplib.SMTPAuthenticationError)
            else f"does not support security={settings.security!r} or a password"
        )
        return SettingsError(
            f"{where} {what}.",
            hint="correct username, password and security of the connection; the tables are committed.",
        )
    why = getattr(error, "strerror", None) or type(error).__name__
    return OutputUnavailable(
        f"{where} did not answer as expected: {why}.",
        hint="wait for the next try, which continues at this point; if it persists, check the mail server.",
    )
