"""Checks at start-up that a store implements conditional writes and returns the bytes that were written.

Most stores without conditional writes return no error: they respond 200 and overwrite the object. So each step checks the
response and then the object. A store that throttles may not respond to a write at once: an unknown write is sent again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from tallystick.errors import SettingsError, StoreRefused, StoreUnavailable
from tallystick.store import Applied, ETag, NotApplied, Outcome, Store, Unknown

# Every byte value, and more than one TCP segment: servers have stored checksum trailers inside objects (boto3#4392).
_FIRST = b"tallystick probe, first body\n" + bytes(range(256)) * 16
_SECOND = b"tallystick probe, second body\n" + bytes(reversed(range(256))) * 16
_LOSER = b"tallystick probe: this body must never be read back\n"
_TRIES_MAX = 8
_PAUSE_S = 0.2
_PAUSE_MAX_S = 2.0
# Each try on a store that hangs takes a read timeout. After this time no other try is made.
_DOUBT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeStep:
    """One check of the store: the request, the expected response, and the actual response."""

    request: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The result of a probe that passed. `scratch_left`: True if the scratch object could not be deleted."""

    uri: str
    steps: tuple[ProbeStep, ...]
    scratch: str
    scratch_left: bool


def prove_conditional_writes(
    store: Store,
    *,
    scratch: str,
    watch: Callable[[ProbeStep], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> ProbeResult:
    """Check, on scratch keys, each property of the store that the commit protocol needs; return the steps.

    `scratch` is a fresh key such as `.probe/<random>`; the key `<scratch>-absent` is used too. The probe deletes both at
    the end, as they are not lake data. If it may not delete, it leaves `scratch` and sets `scratch_left` in the result.
    `watch` is called with each step, including a step that fails.
    Raises StoreRefused with the step that failed, StoreUnavailable if an outcome is still unknown after 8 tries or 30 s,
    SettingsError if the store refuses the caller.
    Safe to repeat with another `scratch`: no key of the lake is written.
    """
    probe = _Probe(store, scratch, watch, sleep, monotonic_s)
    left = True
    try:
        probe.run()
    finally:
        # A failed delete is ignored: a writer's policy may forbid it, and it must not hide the error of a failed probe.
        with suppress(SettingsError, StoreUnavailable, StoreRefused):
            store.delete([scratch, probe.absent])
            left = False
    return ProbeResult(uri=store.uri, steps=tuple(probe.steps), scratch=scratch, scratch_left=left)


class _Probe:
    def __init__(
        self,
        store: Store,
        scratch: str,
        watch: Callable[[ProbeStep], None] | None,
        sleep: Callable[[float], None],
        monotonic_s: Callable[[], float],
    ) -> None:
        self._store = store
        self._watch = watch
        self._sleep = sleep
        self._monotonic_s = monotonic_s
        self._scratch = scratch
        self.absent = f"{scratch}-absent"
        self.steps: list[ProbeStep] = []

    def run(self) -> None:
        first = self._applied(
            "create an object that does not exist (If-None-Match: *)",
            self._create(_FIRST, lands=True),
        )
        self._holds(_FIRST, first)
        self._refused("create it again (If-None-Match: *)", self._create(_LOSER), "exists")
        self._holds(_FIRST, first)
        second = self._applied(
            "replace it by its ETag (If-Match)", self._replace(_SECOND, first, lands=True)
        )
        self._holds(_SECOND, second)
        self._refused(
            "replace it by the ETag it had before (stale If-Match)",
            self._replace(_LOSER, first),
            "changed",
        )
        self._holds(_SECOND, second)
        # Stores differ here, and both responses are correct: S3 returns 404, R2 and Ozone 412.
        answer = self._certain(lambda: self._store.replace(self.absent, _LOSER, expected=second))
        self._refused(
            "replace an object that does not exist (If-Match)", answer, "missing", "changed"
        )
        found = self._store.get(self.absent)
        self._note(
            "read that object",
            "nothing",
            "nothing" if found is None else f"{len(found.body)} bytes",
            found is None,
        )

    def _create(self, body: bytes, *, lands: bool = False) -> Outcome:
        return self._certain(
            lambda: self._store.create(self._scratch, body), body if lands else None
        )

    def _replace(self, body: bytes, expected: ETag, *, lands: bool = False) -> Outcome:
        return self._certain(
            lambda: self._store.replace(self._scratch, body, expected=expected),
            body if lands else None,
        )

    def _certain(self, write: Callable[[], Outcome], lands: bytes | None = None) -> Outcome:
        """Send a write, again while its outcome is unknown, at most 8 times or for 30 s; return the last outcome.

        Safe to repeat: a write that must be refused is refused each time. If a write that must land (`lands`, its bytes)
        landed in an earlier try, the next try is refused, and the object contains these bytes: this counts as applied.
        """
        deadline = self._monotonic_s() + _DOUBT_S
        outcome = write()
        for tries in range(_TRIES_MAX - 1):
            if not isinstance(outcome, Unknown) or self._monotonic_s() >= deadline:
                break
            self._sleep(min(_PAUSE_MAX_S, _PAUSE_S * 2**tries))
            outcome = write()
            if isinstance(outcome, NotApplied) and lands is not None:
                found = self._store.get(self._scratch)
                if found is not None and found.body == lands:
                    outcome = Applied(etag=found.etag)
        return outcome

    def _applied(self, request: str, outcome: Outcome) -> ETag:
        self._note(request, "applied", self._name(request, outcome), isinstance(outcome, Applied))
        assert isinstance(outcome, Applied)
        return outcome.etag

    def _refused(self, request: str, outcome: Outcome, *reasons: str) -> None:
        good = isinstance(outcome, NotApplied) and outcome.because in reasons
        self._note(
            request,
            " or ".join(f"refused: {reason}" for reason in reasons),
            self._name(request, outcome),
            good,
        )

    def _holds(self, body: bytes, etag: ETag) -> None:
        """Check that the object has the bytes and the ETag of the last applied write."""
        expected = f"the {len(body)} bytes written, under the ETag of that write"
        match self._store.get(self._scratch):
            case None:
                found = "nothing"
            case stored if stored.body != body:
                found = f"{len(stored.body)} other bytes"
            case stored if stored.etag != etag:
                found = f"the bytes, but under ETag {stored.etag} instead of {etag}"
            case _:
                found = expected
        self._note("read it back", expected, found, found == expected)

    def _name(self, request: str, outcome: Outcome) -> str:
        match outcome:
            case Applied():
                return "applied"
            case NotApplied():
                return f"refused: {outcome.because}"
            case Unknown():
                raise StoreUnavailable(
                    f"the probe of {self._store.uri} is unfinished: the request to {request} got no clear answer "
                    f"({outcome.because}).",
                    hint="try again; if it persists, check the store and AWS_ENDPOINT_URL_S3.",
                )

    def _note(self, request: str, expected: str, found: str, good: bool) -> None:
        step = ProbeStep(request=request, expected=expected, found=found)
        self.steps.append(step)
        if self._watch is not None:
            self._watch(step)
        if not good:
            raise StoreRefused(
                f"{self._store.uri} does not honour conditional writes: on the request to {request}, expected "
                f"{expected!r}, found {found!r}.",
                hint="use a store that honours them (Amazon S3, or a server with If-Match and If-None-Match on "
                "PutObject); only scratch objects were written.",
            )
