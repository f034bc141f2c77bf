"""Settings of the servers outside the lake, by the name of a connection: Kafka, PostgreSQL, receivers of calls."""
