"""The example `counts`: docs/how-to/example-counts.md."""
