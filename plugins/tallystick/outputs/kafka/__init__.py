"""A topic that gets each committed row once: `declared` for DAG files; `topic` does the work."""

from __future__ import annotations

from tallystick.outputs.kafka.declared import KafkaOutput

__all__ = ["KafkaOutput"]
