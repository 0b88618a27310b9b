"""The rules of other tools: each file is one policy with its settings."""
