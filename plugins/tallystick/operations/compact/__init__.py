"""The use case `compact`: small files of committed intervals become shared files of a target size; no row changes."""

from tallystick.operations.compact.choosing import CompactOptions
from tallystick.operations.compact.run import CompactedFiles, CompactResult, compact, would_compact

__all__ = ["CompactOptions", "CompactResult", "CompactedFiles", "compact", "would_compact"]
