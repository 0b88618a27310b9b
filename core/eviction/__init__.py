"""Decide which pods of marked nodes to evict now, within limits on their number."""
