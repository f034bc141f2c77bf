"""Outputs: places outside the lake that get each row of a committed table exactly once, also after reruns.

`port` defines what an output does and what it gets. The other modules are the kinds that tallystick includes.
"""
