"""One check of `tally doctor`: what was examined, its state, and how to correct it. A pure value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tallystick.errors import TallystickError, without_user_info

State = Literal["ok", "info", "warning", "error", "unknown"]
_SECRET_CHARS_MIN = 4
_AGAIN = "run the command again; if this persists, report it."


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorCheck:
    """The result of one check: what was found, and in `fix` what to do, empty if the state is ok.

    `unknown`: it could not be found out. `command`: a command that does what `fix` describes, otherwise empty.
    """

    area: str
    name: str
    state: State
    found: str
    fix: str = ""
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Area:
    """Builds the checks of one area, by state."""

    name: str

    def ok(self, name: str, found: str) -> DoctorCheck:
        """Return a check without a problem."""
        return DoctorCheck(area=self.name, name=name, state="ok", found=found)

    def info(self, name: str, found: str, fix: str) -> DoctorCheck:
        """Return a check with advice: nothing fails because of it."""
        return DoctorCheck(area=self.name, name=name, state="info", found=found, fix=fix)

    def warning(self, name: str, found: str, fix: str, command: Sequence[str] = ()) -> DoctorCheck:
        """Return a check whose problem does harm in some cases, or later."""
        return DoctorCheck(
            area=self.name,
            name=name,
            state="warning",
            found=found,
            fix=fix,
            command=tuple(command),
        )

    def error(self, name: str, found: str, fix: str, command: Sequence[str] = ()) -> DoctorCheck:
        """Return a check whose problem makes runs fail, or loses something."""
        return replace(self.warning(name, found, fix, command), state="error")

    def unknown(self, name: str, found: str, fix: str) -> DoctorCheck:
        """Return a check whose result could not be found out."""
        return DoctorCheck(area=self.name, name=name, state="unknown", found=found, fix=fix)

    def of_error(self, name: str, error: TallystickError) -> DoctorCheck:
        """Return the check of an error of tallystick, in its own words."""
        return self.error(name, error.message, error.hint)

    def raised(self, name: str, error: Exception) -> DoctorCheck:
        """Return the check of any error that was raised: of another library's it is unknown what it means."""
        if isinstance(error, TallystickError):
            return self.of_error(name, error)
        text = " ".join(str(error).split())[:300]
        return self.unknown(name, f"{type(error).__name__}: {text}".rstrip(": "), _AGAIN)


def without_secrets_of(
    checks: Iterable[DoctorCheck], secrets: Iterable[str]
) -> tuple[DoctorCheck, ...]:
    """Return the checks with each of `secrets` as `***`, the longest first, and without users and passwords in URLs.

    No check should contain one. This is for errors of libraries, whose texts are not known. Secrets of less than four
    characters are left: they are parts of ordinary words.
    """
    wanted = sorted({s for s in secrets if len(s) >= _SECRET_CHARS_MIN}, key=len, reverse=True)

    def masked(text: str) -> str:
        for secret in wanted:
            text = text.replace(secret, "***")
        return without_user_info(text)

    return tuple(
        replace(
            check,
            found=masked(check.found),
            fix=masked(check.fix),
            command=tuple(masked(word) for word in check.command),
        )
        for check in checks
    )


def failed(checks: Iterable[DoctorCheck], *, strict: bool) -> bool:
    """Return True if there is an error, or, with `strict`, a warning."""
    bad = ("error", "warning") if strict else ("error",)
    return any(check.state in bad for check in checks)
