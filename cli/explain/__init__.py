"""Explain one node or one pod, and list all reasons."""
