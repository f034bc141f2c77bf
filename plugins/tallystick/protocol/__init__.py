"""The commit protocol: decisions, as total functions of a root and a request.

Standard library only, no I/O, no clock, no randomness: roots, offsets, times and ids are arguments.
docs/design/0001-commit-protocol.md has the steps. docs/reference/protocol.md has the codes that comments cite: the crash
table C1 to C15 and the invariants I1 to I14.

planning       the plans that a plan task may be granted
open_interval  the interval of a run without dates
boundaries     the instants at which the log is split
committing     the result of committing a plan under the root that was read
ledger         the pages that a decision needs, edited copy-on-write
adoption       one incarnation of a topic follows another
staleness      the committed intervals whose lookback read time that has changed since
publishing     the pending outputs of an interval, and the next step of each
registering    the pending registrations of a lake, and when a pointer may be set
retention      the objects that gc keeps
invariants     the conditions that each swap must meet, checked before its PUT
"""
