"""Compute reaches (the nodes that a pod can use), their usable capacity, and their requests."""
