"""Receivers of calls: `declared` for DAG files; `http` and `email` do the work; `call_log` notes what is done."""

from __future__ import annotations

from tallystick.outputs.calls.declared import EmailOutput, HttpOutput

__all__ = ["EmailOutput", "HttpOutput"]
