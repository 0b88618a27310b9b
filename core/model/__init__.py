"""The values that describe a cluster: nodes, pods, constraints, volumes, resources, time."""
