"""The benchmark of the whole job: `make bench`, or python -m bench.whole_job; see bench/README.md."""
