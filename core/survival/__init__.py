"""How long pods live, from those that were seen; and when a node is expected to be empty."""
