"""One command of `ebb` a module: its options, and what it does."""
