"""Which cluster a command looks at, and what of Ebb's own stands there."""
