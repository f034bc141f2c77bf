"""The example `upsert`: docs/how-to/example-upsert.md."""
