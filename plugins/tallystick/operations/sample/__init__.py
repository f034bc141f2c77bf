"""A sample of a topic: its records from Kafka or from a file, and what columns their values may have."""
