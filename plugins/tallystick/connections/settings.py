"""The base of all connection settings: an allow-list of options with their types, whose secrets no message shows."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, ClassVar, Protocol, Self, TypeVar, get_args, get_origin, get_type_hints

from tallystick.errors import SettingsError

TIMEOUT_S_MAX = 600
S = TypeVar("S", bound="Settings")


class Settings:
    """The settings of one server. Subclasses are frozen dataclasses that check themselves; their fields are the options.

    Their type hints are the JSON types of the options: `int`, `str`, `bool`, `tuple[str, ...]`, `Mapping[str, str]`, and
    each of them `| None` if the option may be left out. An option with the value null is refused.
    """

    __slots__ = ()
    KIND: ClassVar[str]
    """The kind in names: TALLYSTICK_<KIND>_<NAME>, and the Airflow connection <kind>_<name>."""
    TITLE: ClassVar[str]
    """The name of the server's kind in messages."""
    EXAMPLE: ClassVar[str]
    """The JSON of a connection, for hints; possible secrets are `...`."""
    OPTIONS: ClassVar[str]
    """A short text on which options exist, for hints."""

    def secrets(self) -> tuple[str, ...]:
        """Return the values that no message may contain."""
        raise NotImplementedError

    @classmethod
    def from_mapping(cls, options: Mapping[str, Any], *, source: str) -> Self:
        """Check the options against the allow-list; `source` is their origin, for errors.

        Raises SettingsError that names the option, never its value.
        """
        try:
            return cls(**cls._checked(options))
        except SettingsError as unusable:
            why = unusable
        # Raise outside the handler, here and below: Python attaches the handled error, which may quote a value.
        raise SettingsError(f"{source}: {why.message}", hint=why.hint)

    @classmethod
    def from_json(cls, text: str, *, source: str) -> Self:
        """Parse the JSON form; raises SettingsError without quoting the text, which holds secrets."""
        return cls.from_mapping(cls.options_of_json(text, source=source), source=source)

    @classmethod
    def options_of_json(cls, text: str, *, source: str) -> dict[str, Any]:
        """Parse a JSON object with each key once; raises SettingsError without quoting the text."""
        why = "JSON, but not an object"
        try:
            options = json.loads(text, object_pairs_hook=_unique)
        except (ValueError, RecursionError):
            why = "not a JSON object with each key once"
        else:
            if isinstance(options, dict):
                return options
        raise SettingsError(
            f"{source}: the value is {why}.",
            hint=f"write it as {cls.EXAMPLE}; the options are {cls.OPTIONS}.",
        )

    @classmethod
    def _checked(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        kinds = _kinds(cls)
        checked: dict[str, Any] = {}
        for name, value in options.items():
            if name not in kinds:
                raise unusable(
                    f"{name!r} is not a setting", f"use only {', '.join(sorted(kinds))}."
                )
            checked[name] = cls._converted(name, value)
            # Compare exact types: True is an instance of int.
            if type(checked[name]) is not kinds[name]:
                raise unusable(
                    f"{name}: expected {_NAMES[kinds[name]]}, found "
                    f"{_NAMES.get(type(value), 'null' if value is None else 'another type')}",
                    "correct the connection's JSON.",
                )
            if kinds[name] is dict and not all(type(one) is str for one in value.values()):
                raise unusable(
                    f"{name}: expected an object of strings", "write each value as a string."
                )
        # A missing required option gets an empty value, which the class itself refuses.
        return {name: kinds[name]() for name in _required(cls)} | checked

    @classmethod
    def _converted(cls, name: str, value: Any) -> Any:
        """Return an option in the form that its field has; JSON's own by default."""
        del name
        return value


_NAMES: dict[type, str] = {
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "a list",
    tuple: "a list of strings",
    dict: "an object",
}


def _kinds(cls: type[Settings]) -> dict[str, type]:
    """Return the type of each option: the hint without `| None` and without type arguments."""
    hints = get_type_hints(cls)
    kinds: dict[str, type] = {}
    for one in fields(cls):  # type: ignore[arg-type]
        hint = hints[one.name]
        if isinstance(hint, types.UnionType):
            hint = next(member for member in get_args(hint) if member is not types.NoneType)
        kind = get_origin(hint) or hint
        kinds[one.name] = dict if kind is Mapping else kind
    return kinds


def _required(cls: type[Settings]) -> tuple[str, ...]:
    return tuple(
        one.name
        for one in fields(cls)  # type: ignore[arg-type]
        if one.default is MISSING and one.default_factory is MISSING
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    options = dict(pairs)
    if len(options) != len(pairs):
        raise ValueError("duplicate key")
    return options


def unusable(message: str, hint: str) -> SettingsError:
    """Build the SettingsError for unusable settings. `message` names options and never their values."""
    return SettingsError(f"{message}.", hint=hint)


def check_timeout(timeout_s: int) -> None:
    """Check the timeout of a call, in seconds. Raises SettingsError if it is out of bounds."""
    if not 1 <= timeout_s <= TIMEOUT_S_MAX:
        raise unusable(
            f"timeout_s: expected 1 to {TIMEOUT_S_MAX}, found {timeout_s}",
            "set a value in this range.",
        )


def without_secrets(text: bytes | str, secrets: tuple[str, ...], *, length_max: int = 200) -> str:
    """Return the first `length_max` characters of a server's answer, on one line, with each of `secrets` as `***`."""
    shown = text.decode(errors="replace") if isinstance(text, bytes) else text
    for secret in secrets:
        shown = shown.replace(secret, "***")
    return " ".join("".join(c if c.isprintable() else " " for c in shown).split())[:length_max]


class SettingsNamed(Protocol):
    """A function that returns the settings of a connection by its name, from the host's sources.

    Raises SettingsError.
    """

    def __call__(self, kind: type[S], connection: str, /) -> S: ...
