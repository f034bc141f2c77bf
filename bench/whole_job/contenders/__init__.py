"""The contenders of the benchmark, each in a module of its own; see `bench.whole_job.contender` for the interface."""
