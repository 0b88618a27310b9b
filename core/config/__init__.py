"""The settings: their defaults, their limits, and the schema of the file."""
