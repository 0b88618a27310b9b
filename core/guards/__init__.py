"""Nodes that must not be removed, pods that cannot be placed or must not be disrupted."""
