"""Iceberg tables of a lake: what is written into Parquet, what a commit stages, and how both are read.

The metadata is Iceberg v2, built by PyIceberg and written through tallystick's Store port. This package publishes
nothing: a metadata file has no effect until a root names it.

    schema, statistics, partitioning    Arrow side, used in Spark tasks: no PyIceberg
    iceberg, data_files, snapshots      PyIceberg side: types, specs, manifest entries, one snapshot per commit
    file_io, staging                    PyIceberg over the Store; `IcebergTables.stage`
    reading, sql                        readers of one lake snapshot: PyIceberg, manifests, DuckDB
"""
