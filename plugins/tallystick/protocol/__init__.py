"""The commit protocol: values and decisions, standard library only, no I/O, no clock, no chance.

Everything here is a function of its arguments; the world (roots, offsets, times, ids) is passed in.
docs/design/0001-commit-protocol.md tells the whole story with the crash table that comments cite as C1..C15.
"""
