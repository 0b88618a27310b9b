"""Policies, which nominate nodes for removal; `cluster_threshold` is the default."""
