"""The settings, grouped by topic: defaults, allowed values, schema of the file."""
