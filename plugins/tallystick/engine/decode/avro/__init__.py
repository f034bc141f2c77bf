"""Decodes Avro's binary encoding (Avro 1.12 specification) batch by batch, with a verdict per record."""
