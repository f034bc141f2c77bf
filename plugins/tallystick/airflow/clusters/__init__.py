"""Clusters that run drivers: submit one, read its state, kill it. A deferred stage task needs no slot meanwhile.

`port` has the verbs, one module per kind of cluster implements them, and `opening` chooses by a Spark connection. They
share `rest` (requests to a cluster's API) and `submission` (spark-submit in cluster mode).
"""
