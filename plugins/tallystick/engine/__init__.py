"""What runs inside a Spark task, without Spark: read a piece, decode it, transform it, write it, account for it.

Nothing here imports pyspark: every module runs and is tested in one plain process.
"""
