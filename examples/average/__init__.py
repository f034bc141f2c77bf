"""The example `average`: docs/how-to/example-average.md."""
