"""Decide what to write on Nodes and Pods for a plan: marks, taints, protection, deletion costs."""
