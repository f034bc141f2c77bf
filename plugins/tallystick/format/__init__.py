"""The objects that are stored on S3: their fields, validation, keys and canonical bytes.

Standard library only, no I/O, no clock, no randomness. Bytes on S3 are an API: each object names its format and version,
and an unknown version is refused.

root       the only mutable object: one conditional PUT of it is the commit
page       entries and boundaries of the interval ledger
plan       the offset ranges of one interval, for one ledger entry
report     the files of one attempt, and its account of every offset
record     one commit, chained to the one before
calls      the calls that a receiver has acknowledged
keys       the keys of all objects
canonical  strict canonical JSON

columns, interval, lookback, offsets and outputs are values that these objects contain.
"""
