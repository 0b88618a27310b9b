"""How a setting is declared: `structure` for its place in the file, `value_types` for its text."""
