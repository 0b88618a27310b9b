"""Decide which pods of marked nodes to evict now, within the eviction limits of `drain`."""
