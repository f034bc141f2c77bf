"""Kafka: planning (identities, boundaries) and reading (ranges into Arrow, every offset accounted for)."""
