"""The example `cleanup`: docs/how-to/example-cleanup.md."""
