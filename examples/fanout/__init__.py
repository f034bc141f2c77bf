"""The example `fanout`: docs/how-to/example-fanout.md."""
