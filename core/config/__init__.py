"""The settings, a module for each section: defaults, allowed values, schema of the file."""
