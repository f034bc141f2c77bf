"""The objects that are stored on S3, as values that check themselves: their keys and their canonical bytes.

Standard library only, no I/O, no clock, no chance. Bytes on S3 are an API: each object names its format and version, and
an unknown version is refused.

root       the only mutable object: one conditional PUT of it is the commit
page       entries and boundaries of the interval ledger
plan       one contiguous piece of the log for one ledger entry
report     what one attempt wrote, and its account of every offset
record     one commit, chained to the one before
calls      which calls a receiver has acknowledged
keys       the names of all objects
canonical  strict canonical JSON

columns, interval, lookback, offsets and outputs are values that these objects hold.
"""
