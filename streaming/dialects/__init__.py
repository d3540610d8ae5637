"""Wire protocols: what clients of each kind send and expect, around the same session. Sans-I/O."""
