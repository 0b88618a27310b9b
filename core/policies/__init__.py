"""Policies, which nominate nodes for removal; `cluster_threshold` (thesis) is the default."""
