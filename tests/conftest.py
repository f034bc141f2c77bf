"""What all tests share: Hypothesis without a clock (tests never assert a time), failing examples replayable."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "tallystick",
    deadline=None,
    print_blob=True,
    # A loaded machine generates slowly; that says nothing about the claim.
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tallystick")
