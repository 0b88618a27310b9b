"""What a cluster went through, read from dumps, metrics or rows, as a workload to play."""
