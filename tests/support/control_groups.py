"""Tests that measure whole process trees need a control group of their own."""

from __future__ import annotations

import os

import pytest

from bench.whole_job.measured import ControlGroup
from tallystick.errors import SettingsError


def _may_divide() -> bool:
    group = ControlGroup(f"bench-test-{os.getpid()}-probe")
    try:
        group.create()
    except SettingsError:
        return False
    group.remove()
    return True


needs_group = pytest.mark.skipif(
    not _may_divide(), reason="this user may not create a control group, or the machine has none"
)
