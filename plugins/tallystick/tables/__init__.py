"""Iceberg tables of a lake: what is written into Parquet, what a commit stages, and how both are read back.

Real Iceberg v2 metadata, built by PyIceberg, written through our own Store port, and published by nobody here: a
metadata file means nothing until a root names it.

    schema, statistics, partitioning    Arrow side, used inside Spark tasks: no PyIceberg
    iceberg, data_files, snapshots      PyIceberg side: types, specs, manifest entries, one snapshot per commit
    file_io, staging                    PyIceberg over the Store; `IcebergTables.stage`
    reading, sql                        readers of one cut: PyIceberg, manifests, DuckDB
"""
