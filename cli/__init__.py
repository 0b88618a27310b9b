"""`ebb`: commands read a cluster, compute an answer, and print it through one output module."""
