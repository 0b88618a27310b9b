"""Decide which pods of marked nodes to evict now, within the limits of the setting `drain`."""
