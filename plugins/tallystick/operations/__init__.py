"""The use cases, one verb per file or folder. Each reads a root, decides with the protocol, and swaps or reports."""
