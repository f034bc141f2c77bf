"""Decodes change events of Debezium, in JSON and in Avro."""
