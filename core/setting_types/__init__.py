"""Types of settings in the configuration file.

`structure` has those of sections, lists and mappings; `value_types` has those of values.
"""
