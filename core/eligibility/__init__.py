"""Rules: which nodes must not be removed, and which pods must not be placed or disrupted."""
