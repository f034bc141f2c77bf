"""Decodes lines of separated fields (CSV, TSV), one line per record, with a verdict per record."""
