"""The use case `doctor`: what is wrong around tallystick on this machine, and how to correct it.

check        one check and its state
run          runs examinations at the same time, each within a time limit
versions     Python, packages, Java, Spark, the cache of compiled decoders
settings     environment variables and files with connections
store        a lake's bucket
lake         a lake's ledger: its problems, and what its plans need
kafka        a cluster and the topics of ledgers
servers      schema registries and databases
"""
