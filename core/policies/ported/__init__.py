"""The rules of other tools, ported: each file is one policy with its settings."""
