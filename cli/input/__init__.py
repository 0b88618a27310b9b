"""Read the cluster of a command from the API server, or from a file with its objects (a dump)."""
