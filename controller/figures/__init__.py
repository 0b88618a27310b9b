"""Derive figures for operators from reconciliations: savings, pending pods, states of nodes."""
