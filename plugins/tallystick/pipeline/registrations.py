"""Registrations in a declaration: catalogs outside the lake in which the tables are registered after each commit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from tallystick.format import keys
from tallystick.format.outputs import check_target
from tallystick.pipeline.columns import refuse


class DeclaredRegistration(Protocol):
    """A registration as a pipeline declares it: one of the kinds in `tallystick.outputs`, or a user's own class."""

    @property
    def name(self) -> str:
        """The registration's name in the root."""
        ...

    @property
    def target(self) -> str:
        """The target that the name always means; it contains no secrets."""
        ...


def check_registrations(
    registrations: Sequence[DeclaredRegistration], outputs: Collection[str]
) -> None:
    """Refuse a name or a target that is declared twice or not allowed; raises InvalidPipeline."""
    names: set[str] = set()
    by_target: dict[str, str] = {}
    for one in registrations:
        keys.check_name(one.name, "registration")
        try:
            check_target(one.target)
        except ValueError as error:
            raise refuse(f"registration {one.name}: {error}.", "correct its fields.") from error
        # The root, logs and Airflow's database contain the target.
        if "@" in one.target:
            raise refuse(
                f"target of registration {one.name}: expected no @ (it may follow a user name or a password), found one.",
                "name a connection; set passwords in its environment variables.",
            )
        if one.name in names or one.name in outputs:
            raise refuse(
                f"expected unique names of outputs and registrations, found {one.name!r} twice.",
                "remove or rename one of the two.",
            )
        names.add(one.name)
        first = by_target.setdefault(one.target, one.name)
        if first != one.name:
            raise refuse(
                f"registrations {first} and {one.name}: expected different targets, found {one.target} twice.",
                "remove one of the two.",
            )
