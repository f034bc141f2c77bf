"""Places outside the lake that get the rows of a committed table, each once, whatever is rerun.

`port` is what an output must do, and what it is given; the other modules are the kinds that come with tallystick.
"""
