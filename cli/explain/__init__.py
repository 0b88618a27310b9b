"""One node or one pod asked about, and what every reason means."""
