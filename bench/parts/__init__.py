"""Measurements of one part each: reading, decoding, compaction, memory, pages. A target of the Makefile runs each one."""
