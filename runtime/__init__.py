"""Provide the basics of every program: clock, files, logs, metrics, memory, start and end."""
