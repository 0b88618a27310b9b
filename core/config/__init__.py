"""The settings: each with its default, its bounds and its meaning."""
