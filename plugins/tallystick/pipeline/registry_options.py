"""What a format declares of a schema registry. The connection with its name has the address and the login."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tallystick.format import keys
from tallystick.pipeline.columns import refuse, several

Misfits = Literal["dead", "stop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryOptions:
    """The part of a declaration that is about a schema registry.

    `registry` is the name of its connection. A plan contains the schemas of `subjects`: by default that of the topic,
    `<topic>-value` or `<topic>-key`. `misfits`: the records of a schema that does not fit the columns are dead letters
    (`dead`), or nothing is planned while a subject has such a schema (`stop`).
    """

    registry: str
    subjects: tuple[str, ...]
    misfits: Misfits

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> RegistryOptions | None:
        """Return what the options of a format in a plan have of a registry; None if they name none."""
        if not isinstance(options.get("registry"), str):
            return None
        return cls(
            registry=options["registry"],
            subjects=tuple(options.get("subjects", ())),
            misfits=options.get("misfits", "dead"),
        )


def checked_subjects(
    what: str, registry: str | None, subjects: Sequence[str], misfits: str
) -> tuple[str, ...]:
    """Return the subjects as a tuple; raises InvalidPipeline if one of the three is not allowed with the others."""
    if registry is not None:
        keys.check_name(registry, "connection")
    named = several(subjects, f"{what}: subjects")
    if misfits not in ("dead", "stop"):
        raise refuse(
            f"{what}: misfits: expected 'dead' or 'stop', found {misfits!r}.",
            "use one of the two.",
        )
    if registry is None and (named or misfits != "dead"):
        raise refuse(
            f"{what}: expected subjects and misfits only with a registry, found them without one.",
            "remove them.",
        )
    return named


def stored_options(registry: str | None, subjects: Sequence[str], misfits: str) -> dict[str, Any]:
    """Return the same as options of a format in a plan; none without a registry."""
    if registry is None:
        return {}
    return {"registry": registry, "subjects": list(subjects), "misfits": misfits}


def registry_options(declared: Any) -> RegistryOptions | None:
    """Return what a format declares of a schema registry, in the form of a user or of a plan; None if it has none."""
    options = getattr(declared, "options", None)
    if options is None:
        names = ("registry", "subjects", "misfits")
        options = {name: getattr(declared, name) for name in names if hasattr(declared, name)}
    return RegistryOptions.of(options)
