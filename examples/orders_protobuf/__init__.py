"""The example `orders-protobuf`: docs/how-to/example-orders-protobuf.md."""
