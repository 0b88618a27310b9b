"""The values that describe a cluster: nodes, pods, their constraints."""
