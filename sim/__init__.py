"""A simulated cluster in virtual time that drives the same engine, scores and mutation."""
