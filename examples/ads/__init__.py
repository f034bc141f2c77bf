"""The example `ads`: docs/how-to/example-ads.md."""
