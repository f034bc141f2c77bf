"""Registrations: catalogs outside the lake in which each table has a pointer to its metadata.

`declared` has the kinds for DAG files, `port` what a registrar does, the other modules the registrars.
"""

from __future__ import annotations

from tallystick.outputs.registrations.declared import (
    GlueRegistration,
    RestRegistration,
    SqlRegistration,
)

__all__ = ["GlueRegistration", "RestRegistration", "SqlRegistration"]
