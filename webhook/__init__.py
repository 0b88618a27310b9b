"""`ebb-webhook`: turn the mark of a Node into a taint at admission; rotate certificates."""
