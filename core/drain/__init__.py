"""Decide which pods of marked nodes to evict now, where eviction is enabled."""
