"""Which pods of marked nodes are evicted, where that is asked for: the decision alone."""
