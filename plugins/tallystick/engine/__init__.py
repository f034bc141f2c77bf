"""The code that runs inside a Spark task: read an input split, decode it, transform it, write it, account for it.

No module here imports pyspark, so each one runs and is tested in one plain process.
"""
