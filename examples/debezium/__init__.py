"""The example `debezium`: docs/how-to/example-debezium.md."""
