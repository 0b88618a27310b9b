"""Moving in: settings of other tools as a configuration; a file each, listed in `tools`."""
