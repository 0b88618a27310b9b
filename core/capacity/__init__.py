"""Reaches (the nodes that a pod can use), their usable capacity, and sums of requests."""
