"""Calls an HTTP receiver once per row, with an idempotency key that never changes, and notes what is acknowledged.

    Idempotency-Key: "ts1-..."        a text in quotes, as in draft-ietf-httpapi-idempotency-key-header
    Tallystick-Row-Key: ts1-...       the key of the row: the same in its first call, its corrections and its retraction
    Tallystick-Operation: row | correction | retraction
    Tallystick-Corrects: 1            the generation that a correction or a retraction corrects
    Tallystick-Interval, -Generation, -Plan

A call that is noted as acknowledged is never sent again. A call that is in doubt (no answer came, or this process
died before its note) is sent again with the same key and body: if the receiver honours the key, it acts once. So a
zombie does no harm, either.

Each call has a connection of its own. If a connection were used again and an answer came twice, the second one would
be taken for the answer to the next call, and noted.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from itertools import islice
from urllib.parse import urlsplit

from tallystick.connections.http import HttpSettings
from tallystick.connections.settings import without_secrets
from tallystick.connections.tls import tls_of
from tallystick.errors import OutputBusy, OutputRefused, OutputUnavailable, SettingsError
from tallystick.format import keys
from tallystick.outputs.calls import HttpOutput
from tallystick.outputs.calls.call_log import Acknowledged, Tries, calls_of
from tallystick.outputs.calls.calling import Pace, call_all
from tallystick.outputs.calls.effects import Effect, check_keys, effects
from tallystick.outputs.encoding import encoded
from tallystick.outputs.port import Publication, Scope
from tallystick.outputs.times import check_times
from tallystick.store import Store

BATCH = 500
PATIENCE_S = 30.0
PAUSE_S = 0.2
PAUSE_S_MAX = 5.0
ANSWER_BYTES = 4096
PASSING = (408, 409, 425, 429)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """The answer to a call: a status (0 if none came; `text` has the reason) and the beginning of the body."""

    status: int
    text: str
    retry_after_s: float = 0.0
    distrusted: bool = False

    @property
    def acknowledged(self) -> bool:
        """True if the receiver confirms that it has acted."""
        return 200 <= self.status < 300

    @property
    def passes(self) -> bool:
        """True if the same call may get another answer later."""
        return not self.distrusted and (
            self.status == 0 or self.status in PASSING or self.status >= 500
        )


class HttpReceiver:
    """The output that an HttpOutput declares."""

    def __init__(
        self,
        declared: HttpOutput,
        settings: Callable[[], HttpSettings],
        store: Store,
        *,
        batch: int = BATCH,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.declared, self._settings_of, self.store = declared, settings, store
        self.batch, self.patience_s = batch, patience_s
        self._tls: ssl.SSLContext | None = None
        self._scope: Scope | None = None
        self._settings = HttpSettings()
        self._pace = Pace(declared.calls_per_s)
        self._stop = threading.Event()

    # ------------------------------------------------------------ the port

    def begin(self, scope: Scope) -> None:
        """Resolve the connection.

        Safe to repeat: nothing is taken, because two publishers at once do no harm (see the module).
        """
        self._scope, self._settings = scope, self._settings_of()
        self._url()
        self._tls = tls_of(self._settings.cafile)

    def prepare(self, publication: Publication) -> None:
        """Refuse null and duplicate keys, times that receivers cannot read, and an invalid connection.

        Safe to repeat: it only reads.
        """
        self._settings = self._settings_of()
        self._url()
        check_times(publication)
        check_keys(publication, self.declared.key)

    def publish(self, publication: Publication, *, resumed: bool) -> None:
        """Make a call for each row that is not noted as acknowledged, and note it.

        Safe to repeat: the notes are read first, and a call that is in doubt is sent with the key that it had.
        """
        del resumed  # the notes show what is acknowledged
        assert self._scope is not None, "begin comes first"
        self._stop = threading.Event()
        with closing(
            effects(publication, self._scope, key=self.declared.key, once=self._once)
        ) as found:
            if self._once:
                self._by_key(publication, found)
            else:
                self._by_number(publication, found)

    def abort(self, publication: Publication) -> None:
        """Do nothing, because `prepare` sets nothing aside. Safe to repeat."""

    def close(self) -> None:
        """Do nothing, because each call has a connection of its own. Safe to repeat."""

    # ------------------------------------------------------------ which calls

    @property
    def _once(self) -> bool:
        """True if a key counts over all generations, so that calls that are sent are found by key."""
        return bool(self.declared.key) or self.declared.replaced == "once"

    def _by_number(self, publication: Publication, found: Iterator[Effect]) -> None:
        """Make the calls, and write a note per batch.

        Safe to repeat: if a process dies, one batch is in doubt, and its calls have the same keys again.
        """
        acknowledged = Acknowledged(self.store, publication)
        left = (effect for effect in found if effect not in acknowledged)
        while some := list(islice(left, self.batch)):
            done: list[int] = []
            try:
                self._call_all(some, lambda effect: self._call(publication, effect), done)
            finally:
                acknowledged.note(done)

    def _by_key(self, publication: Publication, found: Iterator[Effect]) -> None:
        """Make the calls, and write two notes per call.

        Safe to repeat: the first note takes the key for this row, the second one records that the call is
        acknowledged.
        """
        tries = Tries(store=self.store, publication=publication)

        def call(effect: Effect) -> None:
            if not tries.begin(effect, 1):
                known = tries.known(effect)
                if known.sent or tries.taken_by_another(effect):
                    return
            self._call(publication, effect)
            tries.acknowledge(effect)

        while some := list(islice(found, self.batch)):
            self._call_all(some, call, [])

    def _call_all(
        self, some: list[Effect], call: Callable[[Effect], None], done: list[int]
    ) -> None:
        threads = self.declared.concurrency
        call_all(some, call, threads=threads, stop=self._stop, done=done)

    # ------------------------------------------------------------ one call

    def _call(self, publication: Publication, effect: Effect) -> None:
        """Call until the receiver acknowledges, at most for `patience_s`.

        Safe to repeat: each try has the same key. Raises the error that the last answer means.
        """
        deadline = time.monotonic() + self.patience_s
        pause_s = PAUSE_S
        while True:
            self._pace.wait(self._stop)
            answer = self._send(publication, effect)
            if answer.acknowledged:
                return
            if not answer.passes:
                raise self._refused(publication, effect, answer)
            wait_s = max(pause_s, answer.retry_after_s)
            if self._stop.is_set() or time.monotonic() + wait_s > deadline:
                raise self._later(publication, effect, answer)
            self._stop.wait(wait_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _send(self, publication: Publication, effect: Effect) -> HttpAnswer:
        url = urlsplit(self._url())
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        timeout_s, connected = self._settings.timeout_s, False
        connection = self._connection(url.scheme, url.hostname or "", url.port)
        try:
            connection.connect()
            connected = True
            connection.request(
                self.declared.method,
                target,
                body=encoded(effect.row),
                headers=self._headers(publication, effect),
            )
            answer = connection.getresponse()
            return HttpAnswer(
                status=answer.status,
                text=without_secrets(self._beginning(answer), self._settings.secrets()),
                retry_after_s=_retry_after_s(answer.getheader("Retry-After")),
            )
        except (HTTPException, OSError) as error:
            return _silence(error, timeout_s, connected=connected)
        finally:
            connection.close()

    def _connection(self, scheme: str, host: str, port: int | None) -> HTTPConnection:
        timeout_s = self._settings.timeout_s
        if scheme == "http":
            return HTTPConnection(host, port, timeout=timeout_s)
        return HTTPSConnection(host, port, timeout=timeout_s, context=self._tls)

    def _beginning(self, answer: HTTPResponse) -> bytes:
        """Return the beginning of the body.

        The status is known by then: if the body breaks off or is slow, nothing changes.
        """
        found, deadline = b"", time.monotonic() + self._settings.timeout_s
        try:
            while len(found) < ANSWER_BYTES and time.monotonic() < deadline:
                some = answer.read1(ANSWER_BYTES)
                if not some:
                    break
                found += some
        except (HTTPException, OSError):
            pass
        return found

    def _headers(self, publication: Publication, effect: Effect) -> dict[str, str]:
        headers = {
            "Row-Key": effect.row_key,
            "Operation": effect.operation,
            "Interval": publication.interval.part,
            "Generation": str(publication.generation),
            "Plan": publication.plan,
        }
        if effect.operation != "row":
            headers["Corrects"] = str(publication.generation_before)
        return {
            "Content-Type": "application/json",
            "User-Agent": "tallystick",
            "Connection": "close",
            **self._settings.sent_headers(),
            "Idempotency-Key": f'"{effect.key}"',
            **{f"Tallystick-{name}": value for name, value in headers.items()},
        }

    def _url(self) -> str:
        if not self.declared.url.startswith("/"):
            return self.declared.url
        if self._settings.base_url is None:
            raise SettingsError(
                f"output {self.declared.name} calls {self.declared.url}: expected a base_url in connection "
                f"{self.declared.http}, found none.",
                hint="add base_url to the connection, or declare the whole url.",
            )
        return self._settings.base_url.rstrip("/") + self.declared.url

    # ------------------------------------------------------------ errors

    def _message(self, publication: Publication, effect: Effect, answer: HttpAnswer) -> str:
        result = f"answered {answer.status}" if answer.status else "did not answer"
        text = f": {answer.text}" if answer.text else ""
        return f"{publication}, {effect.named}, key {effect.key}: {self.declared.target} {result}{text}."

    def _later(
        self, publication: Publication, effect: Effect, answer: HttpAnswer
    ) -> OutputBusy | OutputUnavailable:
        message = self._message(publication, effect, answer)
        if answer.status == 409:
            return OutputBusy(
                message,
                hint="wait for the next try: another call with this key is in progress. If the receiver uses 409 for "
                "anything else, change it to another status.",
            )
        return OutputUnavailable(
            message,
            hint="wait for the next try, which continues at this point with the same keys; if it persists, check the "
            "receiver.",
        )

    def _refused(
        self, publication: Publication, effect: Effect, answer: HttpAnswer
    ) -> OutputRefused | SettingsError:
        message = self._message(publication, effect, answer)
        if answer.distrusted:
            return SettingsError(
                message,
                hint="set a cafile in the connection that verifies the receiver's certificate; the tables are committed.",
            )
        if 300 <= answer.status < 400:
            hint = (
                "declare the new address as the url of another output: redirects are not followed, because a call and "
                "its key are for one receiver"
            )
        elif answer.status in (401, 403, 407):
            hint = f"check the rights of connection {self.declared.http} at the receiver, then clear `publish`"
        elif answer.status == 422:
            hint = (
                "check whether the receiver already has this key with another body, and who sent it: a receiver that "
                "honours keys then also answers 422"
            )
        else:
            hint = "fix the receiver, so that it accepts this row, and clear `publish`"
        return OutputRefused(
            message,
            hint=f"{hint}. The tables are committed, and acknowledged calls remain so. To continue without this "
            f"call, write an object {self._by_hand(publication, effect)} first.",
        )

    def _by_hand(self, publication: Publication, effect: Effect) -> str:
        """Return the note that a person can write to skip a call."""
        if self._once:
            key = keys.call_sent(publication.output, effect.digits)
            return f"{self.store.uri}/{key} with any content"
        note = calls_of(publication, effect.number, effect.number + 1)
        return f"{self.store.uri}/{note.key} with the content {note.encode().decode()}"


def _silence(error: Exception, timeout_s: int, *, connected: bool) -> HttpAnswer:
    """Return the reason why no answer came, in tallystick's words: the library's may contain what a receiver sent."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return HttpAnswer(status=0, text=error.verify_message, distrusted=True)
    if not connected:
        if isinstance(error, TimeoutError):
            return HttpAnswer(status=0, text=f"no connection within {timeout_s} s")
        why = getattr(error, "strerror", None) or type(error).__name__
        return HttpAnswer(status=0, text=f"no connection: {why}")
    if isinstance(error, TimeoutError):
        return HttpAnswer(
            status=0, text=f"no answer within {timeout_s} s; the call may have taken effect"
        )
    return HttpAnswer(
        status=0, text="the connection ended before the answer; the call may have taken effect"
    )


def _retry_after_s(header: str | None) -> float:
    """Return the seconds of a number or a date (RFC 9110, 10.2.3); 0 for anything else."""
    if header is None:
        return 0.0
    if header.isascii() and header.isdigit():
        return float(header)
    try:
        at = parsedate_to_datetime(header)
    except (ValueError, OverflowError):  # of a year or an offset that no date has
        return 0.0
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())
