"""All errors that a user can meet, grouped by what the caller does next.

    TallystickError
    ├── RetryLater            repeat the same call later; no person has to act
    │   ├── NotYet                the log does not reach the boundary yet
    │   ├── StoreUnavailable      S3 did not answer, or answered that it cannot
    │   ├── KafkaUnavailable      no broker answered, or a leader is moving
    │   ├── ScratchFull           no room is left on the local disk of a task or driver
    │   ├── SwapContended         other writers won every swap that this task tried
    │   ├── OutcomeUnknown        a write may or may not have been applied; nothing was deleted
    │   ├── OutputUnavailable     a receiver outside the lake did not answer, or answered that it cannot
    │   ├── OutputBusy            another process publishes into that output
    │   ├── RegistryUnavailable   a schema registry did not answer, or answered that it cannot
    │   └── ClusterUnavailable    a cluster that runs drivers did not answer, or answered that it cannot
    ├── Superseded            this attempt is over and nothing is wrong: another run or operator decided
    └── ActionRequired        a person has to decide or correct something first
        ├── InvalidRequest        a parameter of a run is not allowed
        ├── InvalidPipeline       a declaration, a name or a job's output is not allowed
        ├── SettingsError         a connection, credential or environment variable is missing or not allowed
        ├── JobChanged            the deployed job is not the planned one
        ├── IdentityChanged       a topic, cluster or table is not the one in the ledger
        ├── SchemaChanged         the declared columns do not fit the columns in the lake
        ├── SchemaNotFound        a schema registry has no such subject, version or id
        ├── SchemaIdConflict      an id of a schema registry means two different schemas
        ├── RegistryRefused       a schema registry refused the credentials, or its answer cannot be used
        ├── OutsideRetention      the log no longer holds the requested offsets
        ├── LogDamaged            the content of the log is not what it must be
        ├── TooManyDeadLetters    an interval has more dead letters than its pipeline allows
        ├── ReportRejected        the staged files do not match their report, or are missing
        ├── OutputRefused         an output cannot take these rows as they are, or its content is in doubt
        ├── StoreRefused          the store does not honour conditional writes
        ├── NothingPlanned        no run has planned anything in this lake yet, or its URI is wrong
        ├── RootVanished          the root existed and is gone
        └── Corrupt               an object cannot be read as what it claims to be

A message describes what happened with both values (expected and found); the hint describes what to do next. Messages
contain no secrets: the code that builds a message leaves them out, and the base class masks `user:password@` in every
URL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import ClassVar

__all__ = [
    "ActionRequired",
    "ClusterUnavailable",
    "Corrupt",
    "IdentityChanged",
    "InvalidPipeline",
    "InvalidRequest",
    "JobChanged",
    "KafkaUnavailable",
    "LogDamaged",
    "NotYet",
    "NothingPlanned",
    "OutcomeUnknown",
    "OutputBusy",
    "OutputRefused",
    "OutputUnavailable",
    "OutsideRetention",
    "RegistryRefused",
    "RegistryUnavailable",
    "ReportRejected",
    "RetryLater",
    "RootVanished",
    "SchemaChanged",
    "SchemaIdConflict",
    "SchemaNotFound",
    "ScratchFull",
    "SettingsError",
    "StoreRefused",
    "StoreUnavailable",
    "Superseded",
    "SwapContended",
    "TallystickError",
    "TooManyDeadLetters",
]

_WORD = re.compile(r"\S+")


class TallystickError(Exception):
    """The base class. `kind` is a stable name for programs, `hint` a sentence for people."""

    kind: ClassVar[str] = "error"

    def __init__(self, message: str, *, hint: str) -> None:
        self.message = without_user_info(message)
        self.hint = without_user_info(hint)
        super().__init__(self.message, self.hint)

    def __str__(self) -> str:
        return f"{self.message} Next: {self.hint}"

    def __reduce__(self) -> tuple[object, ...]:
        # Python cannot unpickle an exception with keyword-only arguments by default, and Spark pickles exceptions.
        return (_rebuild, (type(self), self.message, self.hint))


def without_user_info(text: str) -> str:
    """Return `text` with the user and password of every URL as `***`. If in doubt, mask more rather than less."""
    return _WORD.sub(_masked, text) if "@" in text else text


def _masked(word: re.Match[str]) -> str:
    # A password may contain an @ and, as AWS keys do, a slash: it ends at the last @, as in URL libraries.
    url, at, host = word[0].rpartition("@")
    before, scheme_ends, user_info = url.partition("://")
    if not (at and scheme_ends):
        return word[0]
    is_path = "/" in user_info and ":" not in user_info.split("/", 1)[0]
    return word[0] if is_path else f"{before}://***@{host}"


def listed(names: Iterable[object]) -> str:
    """Return the names in their order, separated by commas: `a, b`; `none` if there are none."""
    return ", ".join(map(str, names)) or "none"


def _rebuild(cls: type[TallystickError], message: str, hint: str) -> TallystickError:
    return cls(message, hint=hint)


class RetryLater(TallystickError):
    """A temporary failure: the caller may repeat the same call."""

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
    """No room is left on the local disk to which a task or driver writes before it uploads."""

    kind = "scratch_full"


class SwapContended(RetryLater):
    """Other writers won every swap that this call tried."""

    kind = "swap_contended"


class OutcomeUnknown(RetryLater):
    """A write may or may not have been applied. Nothing was deleted; the next read shows which."""

    kind = "outcome_unknown"


class OutputUnavailable(RetryLater):
    """A receiver outside the lake did not answer, or answered that it cannot. What it accepted is not sent again."""

    kind = "output_unavailable"


class OutputBusy(RetryLater):
    """Another process publishes into the same output. It publishes the same rows as this one would."""

    kind = "output_busy"


class RegistryUnavailable(RetryLater):
    """A schema registry did not answer, or answered that it cannot."""

    kind = "registry_unavailable"


class ClusterUnavailable(RetryLater):
    """A cluster that runs drivers did not answer, or answered that it cannot. A driver may have been started."""

    kind = "cluster_unavailable"


class Superseded(TallystickError):
    """This attempt is over and nothing is wrong: another plan, run or operator took its interval or released it."""

    kind = "superseded"


class ActionRequired(TallystickError):
    """A retry cannot help: a person has to decide or correct something first."""

    kind = "action_required"


class InvalidRequest(ActionRequired):
    """A parameter of a run is not allowed."""

    kind = "invalid_request"


class InvalidPipeline(ActionRequired):
    """A declaration, a name or a job's output is not allowed."""

    kind = "invalid_pipeline"


class SettingsError(ActionRequired):
    """A connection, credential or environment variable is missing or not allowed."""

    kind = "settings"


class JobChanged(ActionRequired):
    """The deployed job is not the one that was planned."""

    kind = "job_changed"


class IdentityChanged(ActionRequired):
    """A topic, cluster or table is not the one in the ledger."""

    kind = "identity_changed"


class SchemaChanged(ActionRequired):
    """The declared columns do not fit the columns in the lake."""

    kind = "schema_changed"


class SchemaNotFound(ActionRequired):
    """A schema registry has no such subject, version or id."""

    kind = "schema_not_found"


class SchemaIdConflict(ActionRequired):
    """An id of a schema registry means two different schemas: an earlier one and a current one, or two current ones."""

    kind = "schema_id_conflict"


class RegistryRefused(ActionRequired):
    """A schema registry refused the credentials, or its answer cannot be used."""

    kind = "registry_refused"


class OutsideRetention(ActionRequired):
    """The log no longer holds the requested offsets."""

    kind = "outside_retention"


class LogDamaged(ActionRequired):
    """The content of the log is not what it must be: a missing offset, a bad checksum, an unknown format."""

    kind = "log_damaged"


class TooManyDeadLetters(ActionRequired):
    """An interval has more dead letters than its pipeline allows. Nothing was committed."""

    kind = "too_many_dead_letters"


class ReportRejected(ActionRequired):
    """The files that an attempt staged do not match their report, or are missing."""

    kind = "report_rejected"


class OutputRefused(ActionRequired):
    """An output cannot take these rows as they are, or its content is in doubt. The commit of the tables remains."""

    kind = "output_refused"


class StoreRefused(ActionRequired):
    """The store does not honour conditional writes, so no update would be safe."""

    kind = "store_refused"


class NothingPlanned(ActionRequired):
    """Nothing has been planned in this lake yet: its prefix contains no object of a lake."""

    kind = "nothing_planned"


class RootVanished(ActionRequired):
    """The root existed and is gone."""

    kind = "root_vanished"


class Corrupt(ActionRequired):
    """An object cannot be read as what it claims to be; it is never repaired or overwritten."""

    kind = "corrupt"


def error_of_kind(kind: str, message: str, *, hint: str) -> TallystickError:
    """Build the error of the class with this `kind`, as reported by another process.

    Returns a plain TallystickError if no class in this module has the kind.
    """
    return _KINDS.get(kind, TallystickError)(message, hint=hint)


def _tree(top: type[TallystickError]) -> dict[str, type[TallystickError]]:
    found = {top.kind: top}
    for below in top.__subclasses__():
        found |= _tree(below)
    return found


# Built at the end of this module: a subclass in another module, which may inherit the kind, cannot replace its parent.
_KINDS = _tree(TallystickError)
