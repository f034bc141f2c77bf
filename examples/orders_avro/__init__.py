"""The example `orders-avro`: docs/how-to/example-orders-avro.md."""
