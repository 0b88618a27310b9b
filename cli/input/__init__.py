"""Read the cluster that a command is about: from the API server or from a dump."""
