"""The use case `verify`: prove that a lake holds what its ledger says, from the stored objects alone.

One root is read; everything is judged against that root. Nothing is written, Kafka is not asked, no data file is opened
unless `deep`. What each check proves stands in CHECKS; docs/reference/cli.md says it for people.

    evidence    reads what the root reaches, and turns what cannot be read into findings
    chain, tiling, intervals, tables, rows      the checks
    proof       the values that come out
"""

from __future__ import annotations

from tallystick.operations.verify.proof import CHECKS, Check, Demands, Finding, Proof, Watch
from tallystick.operations.verify.run import verify

__all__ = ["CHECKS", "Check", "Demands", "Finding", "Proof", "Watch", "verify"]
