"""The objects that are stored on S3, as values that check themselves: their keys and their canonical bytes.

Standard library only, no I/O, no clock, no chance. Bytes on S3 are an API: each object names its format and version, and
an unknown version is refused.
"""
