"""Show the state of a cluster as text in a terminal, and follow it, for `ebb top`."""
