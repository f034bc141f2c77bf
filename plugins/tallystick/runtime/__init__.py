"""The services of the machine: clock, ids and random numbers (`system`), and compiled loops (`compiled`)."""

from __future__ import annotations

from tallystick.runtime.system import Runtime, system_runtime, whole_ms

__all__ = ["Runtime", "system_runtime", "whole_ms"]
