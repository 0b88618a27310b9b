"""Translate other tools' settings into a configuration."""
