"""Decoders, which turn the bytes of records into typed columns. Each format has its own module or folder."""
