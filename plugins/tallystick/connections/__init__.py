"""Settings of the servers outside the lake, by connection name: Kafka, PostgreSQL, HTTP receivers and mail servers."""
