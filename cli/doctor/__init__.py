"""The checks of `ebb doctor`: a function for each judges what was read, and returns a result."""
