"""Decide which nodes the cluster can do without; `reconcile` is one pass over it."""
