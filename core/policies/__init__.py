"""Policies, which propose nodes for removal; `cluster_threshold` is the default."""
