"""Which examples there are: a line each, in the order in which `NAME=all` plays them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tallystick.local.examples.ads import Ads
from tallystick.local.examples.average import Average
from tallystick.local.examples.cleanup import Cleanup
from tallystick.local.examples.counts import Counts
from tallystick.local.examples.files import Files
from tallystick.local.examples.scene import Example, Scene

EXAMPLES: Mapping[str, Callable[[Scene], Example]] = {
    "files": Files,
    "counts": Counts,
    "cleanup": Cleanup,
    "average": Average,
    "ads": Ads,
}
