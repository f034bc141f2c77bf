"""Tests of the registry's client run on a real schema registry."""

from __future__ import annotations

from support.registries import registry

__all__ = ["registry"]
