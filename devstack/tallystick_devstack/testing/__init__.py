"""Tools for tests, tallystick's and its users': stores with injected faults, test servers, test suites to inherit.

The library does not import this package.
"""
