"""Measurements: one part of tallystick (bench/parts), and the whole job next to other systems (bench/whole_job)."""
