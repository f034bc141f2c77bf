"""For tests, ours and those of users: stores that fail on purpose, servers to run against, suites to inherit.

Nothing in the library imports this package.
"""
