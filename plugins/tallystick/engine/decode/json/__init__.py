"""Records that are JSON objects: `rows` decodes batches with compiled loops, `exact` decodes single records in Python."""
