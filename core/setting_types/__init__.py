"""Types of settings: `structure` for sections, lists and mappings, `value_types` for values."""
