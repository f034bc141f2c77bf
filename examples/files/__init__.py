"""The example `files`: docs/how-to/example-files.md."""
