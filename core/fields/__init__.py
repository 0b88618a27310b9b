"""How a setting is declared: `structure` is its place in the file, `value_types` its text."""
