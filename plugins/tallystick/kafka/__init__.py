"""Kafka: planning (identities, boundaries) and reading (offset ranges into Arrow, with an account of every offset)."""
