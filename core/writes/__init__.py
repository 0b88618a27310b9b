"""Decide the writes for a plan: marks, taints, protection, deletion costs, CapacityBuffers."""
