"""Public names that are imported on first use (PEP 562), so that parsing a DAG file loads only what the file uses."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of `package`: it imports a name of `homes` from the module that defines the name.

    `homes`: name to module. The returned function raises AttributeError for any other name, as a module does.
    """

    def getattribute(name: str) -> Any:
        if name in homes:
            return getattr(importlib.import_module(homes[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return getattribute
