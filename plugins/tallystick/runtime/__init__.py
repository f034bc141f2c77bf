"""What the machine offers: the clock, ids and chance (`world`), and compiled loops (`compiled`)."""

from __future__ import annotations

from tallystick.runtime.world import World, real_world, whole_ms

__all__ = ["World", "real_world", "whole_ms"]
