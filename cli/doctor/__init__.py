"""The checks of `ebb doctor`, a function for each: from facts about a cluster to findings."""
