"""From the bytes of a record to typed columns, a format per file or folder."""
