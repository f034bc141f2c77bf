"""The commit protocol: decisions, as total functions of what a root holds and what a request asks for.

Standard library only, no I/O, no clock, no chance: roots, offsets, times and ids are passed in.
docs/design/0001-commit-protocol.md has the steps, and the crash table that comments cite as C1..C15.

planning       what a plan task may be granted
open_interval  the interval of a run without dates
boundaries     the instants at which the log is split
committing     what committing a plan means under the root that was read
ledger         the pages that a decision needs, edited copy-on-write
adoption       one incarnation of a topic follows another
staleness      which committed intervals looked back at time that has changed since
publishing     what each output lacks of an interval, and which step comes next
retention      what gc keeps
invariants     what must hold of each swap, checked before its PUT
"""
