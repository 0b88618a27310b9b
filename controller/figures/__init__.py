"""Derive statistics for operators from reconciliations: savings, Pending pods, states of nodes."""
