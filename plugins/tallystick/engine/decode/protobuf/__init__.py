"""The reader of Protobuf messages: `reader` decodes batches in compiled loops, `compile` compiles .proto files."""
