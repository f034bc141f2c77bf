"""The example `dedup`: docs/how-to/example-dedup.md."""
