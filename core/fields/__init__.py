"""How a setting is declared: where it stands in the file, and how its value is written there."""
