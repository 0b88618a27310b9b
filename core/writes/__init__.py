"""Decide the writes for a plan: to Nodes, to pod deletion costs, and to CapacityBuffers."""
