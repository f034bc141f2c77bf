"""The use cases, a verb per file or folder: each reads a root, decides with the protocol, and swaps or reports."""
