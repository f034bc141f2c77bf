"""Every error a user can meet, grouped by what the caller does next.

    TallystickError
    ├── RetryLater            try the same call again later; nothing needs a person
    │   ├── NotYet                the log does not reach the boundary yet
    │   ├── StoreUnavailable      S3 did not answer, or answered that it cannot
    │   ├── KafkaUnavailable      no broker answered, or a leader is moving
    │   ├── ScratchFull           no room is left on the local disk of a task or driver
    │   ├── SwapContended         others won every swap this task tried
    │   ├── OutcomeUnknown        a write may or may not have landed; nothing was deleted
    │   ├── OutputUnavailable     a receiver outside the lake did not answer, or answered that it cannot
    │   └── OutputBusy            another process publishes into that output
    ├── Superseded            this attempt is over and nothing is wrong: another run or operator decided
    └── ActionRequired        a person has to decide or correct something first
        ├── InvalidRequest        parameters of a run
        ├── InvalidPipeline       declaration of a pipeline, a name, a job's output
        ├── SettingsError         a connection, a credential, an environment variable
        ├── JobChanged            the deployed job is not the planned one
        ├── IdentityChanged       another topic, cluster or table than the ledger knows
        ├── SchemaChanged         columns that do not fit the ones in the lake
        ├── OutsideRetention      the log no longer holds what is wanted
        ├── LogDamaged            the log holds something else than it must
        ├── ReportRejected        what was staged does not add up
        ├── OutputRefused         an output cannot take these rows as they are, or nobody knows what it holds
        ├── StoreRefused          the store does not honour conditional writes
        ├── RootVanished          the root was there and is gone
        └── Corrupt               an object that cannot be read as what it claims to be

A message says what happened with both values, then what to do next. Messages hold no secrets: those who build them leave
them out, and what still stands in a URL as `user:password@` is struck out here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import ClassVar

_WORD = re.compile(r"\S+")


class TallystickError(Exception):
    """Root of the tree; `kind` is a stable name for programs, `hint` a sentence for people."""

    kind: ClassVar[str] = "error"

    def __init__(self, message: str, *, hint: str) -> None:
        self.message = without_user_info(message)
        self.hint = without_user_info(hint)
        super().__init__(self.message, self.hint)

    def __str__(self) -> str:
        return f"{self.message} Next: {self.hint}"

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions with keyword-only arguments do not survive pickling by themselves, and Spark pickles them.
        return (_rebuild, (type(self), self.message, self.hint))


def without_user_info(text: str) -> str:
    """Return a text in which the user and password of every URL are `***`; in doubt more is struck out than less."""
    return _WORD.sub(_struck, text) if "@" in text else text


def _struck(word: re.Match[str]) -> str:
    # A password may hold an @ and, as AWS keys do, a slash: it goes on to the last @, as URL libraries read it.
    url, at, host = word[0].rpartition("@")
    before, scheme_ends, user_info = url.partition("://")
    if not (at and scheme_ends):
        return word[0]
    is_path = "/" in user_info and ":" not in user_info.split("/", 1)[0]
    return word[0] if is_path else f"{before}://***@{host}"


def listed(names: Iterable[object]) -> str:
    """Return names as people write them, in their order: `a, b`; `none` where there are none."""
    return ", ".join(map(str, names)) or "none"


def _rebuild(cls: type[TallystickError], message: str, hint: str) -> TallystickError:
    return cls(message, hint=hint)


class RetryLater(TallystickError):
    """Nothing is broken that time does not mend: the same call may be made again."""

    kind = "retry_later"


class NotYet(RetryLater):
    """The log does not reach the boundary yet, or an open transaction lies before it."""

    kind = "not_yet"


class StoreUnavailable(RetryLater):
    """The object store did not answer, or answered that it cannot."""

    kind = "store_unavailable"


class KafkaUnavailable(RetryLater):
    """No broker answered, or a leader is moving."""

    kind = "kafka_unavailable"


class ScratchFull(RetryLater):
    """No room is left on the local disk where a task or driver writes before it uploads."""

    kind = "scratch_full"


class SwapContended(RetryLater):
    """Other writers won every swap that this call tried."""

    kind = "swap_contended"


class OutcomeUnknown(RetryLater):
    """A write may or may not have landed. Nothing was deleted; the next read tells."""

    kind = "outcome_unknown"


class OutputUnavailable(RetryLater):
    """A receiver outside the lake did not answer, or answered that it cannot. What it has taken is not sent again."""

    kind = "output_unavailable"


class OutputBusy(RetryLater):
    """Another process publishes into the same output. What it publishes is what this one would have."""

    kind = "output_busy"


class Superseded(TallystickError):
    """This attempt is over and nothing is wrong: another plan, run or operator holds what it worked for."""

    kind = "superseded"


class ActionRequired(TallystickError):
    """Trying again cannot help: a person has to decide or mend something first."""

    kind = "action_required"


class InvalidRequest(ActionRequired):
    """A run's parameters are not what is allowed."""

    kind = "invalid_request"


class InvalidPipeline(ActionRequired):
    """A declaration, a name or a job's output is not what is allowed."""

    kind = "invalid_pipeline"


class SettingsError(ActionRequired):
    """A connection, credential or environment variable is missing or not allowed."""

    kind = "settings"


class JobChanged(ActionRequired):
    """The deployed job is not the one that was planned."""

    kind = "job_changed"


class IdentityChanged(ActionRequired):
    """A topic, cluster or table is not the one that the ledger knows."""

    kind = "identity_changed"


class SchemaChanged(ActionRequired):
    """The declared columns do not fit the ones in the lake."""

    kind = "schema_changed"


class OutsideRetention(ActionRequired):
    """The log no longer holds what is wanted."""

    kind = "outside_retention"


class LogDamaged(ActionRequired):
    """The log holds something else than it must: a gap, a bad checksum, an unknown format."""

    kind = "log_damaged"


class ReportRejected(ActionRequired):
    """What an attempt staged does not add up, or is not there."""

    kind = "report_rejected"


class OutputRefused(ActionRequired):
    """An output cannot take these rows as they are, or what it holds is in doubt. The tables' commit stands."""

    kind = "output_refused"


class StoreRefused(ActionRequired):
    """The store does not honour conditional writes, so nothing here would be safe."""

    kind = "store_refused"


class RootVanished(ActionRequired):
    """The root was there and is gone."""

    kind = "root_vanished"


class Corrupt(ActionRequired):
    """An object cannot be read as what it claims to be; it is never repaired or overwritten."""

    kind = "corrupt"


def error_of_kind(kind: str, message: str, *, hint: str) -> TallystickError:
    """The error whose class names `kind`, as another process told it; a plain TallystickError for a kind unknown here."""
    return _KINDS.get(kind, TallystickError)(message, hint=hint)


def _tree(top: type[TallystickError]) -> dict[str, type[TallystickError]]:
    found = {top.kind: top}
    for below in top.__subclasses__():
        found |= _tree(below)
    return found


# Taken when this module ends, so that a private subclass elsewhere never stands for its parent's kind.
_KINDS = _tree(TallystickError)
