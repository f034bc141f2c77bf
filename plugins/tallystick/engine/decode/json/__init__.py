"""The decoder of JSON objects: `rows` decodes batches in compiled loops, `exact` decodes single values in Python."""
