"""The example `billing`: docs/how-to/example-billing.md."""
