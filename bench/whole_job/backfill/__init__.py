"""The benchmark of a backfill: `make bench-backfill`, or python -m bench.whole_job.backfill; see bench/README.md."""
