"""Convert other tools' settings to a configuration of Ebb, for `ebb migrate`."""
