"""The use case `verify`: proves from the stored objects alone that a lake contains what its ledger records.

It reads one root and checks everything against that root. It writes nothing, does not connect to Kafka, and opens data
files only if `deep` is set. CHECKS lists what each check proves; docs/reference/cli.md describes the checks for users.

    evidence    reads the objects that the root reaches; an unreadable object becomes a finding
    chain, tiling, intervals, tables, rows      the checks
    proof       the result types
"""

from __future__ import annotations

from tallystick.operations.verify.proof import CHECKS, Check, Demands, Finding, Proof, Watch
from tallystick.operations.verify.run import verify

__all__ = ["CHECKS", "Check", "Demands", "Finding", "Proof", "Watch", "verify"]
