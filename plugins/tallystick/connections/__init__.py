"""Settings of the servers outside the lake, by connection name: Kafka, schema registries, the receivers of outputs."""
